//! Renders a report as an SVG: one row per total, factor, language and tag, one panel per measure.

use std::fmt::Write as _;

use super::{measures::MetricAverages, report::EvalReport};

const ROW_HEIGHT: usize = 26;
const HEADING_HEIGHT: usize = 30;
const TOP_MARGIN: usize = 96;
const LABELS_WIDTH: usize = 230;
const PANEL_WIDTH: usize = 190;
const PANEL_GAP: usize = 56;
const MARGIN: usize = 24;
/// The colours of the first settings and of the settings compared with them.
const FIRST_COLOUR: &str = "#1f5fa8";
const SECOND_COLOUR: &str = "#d9822b";

enum ChartRow<'a> {
    Heading(&'static str),
    Bars {
        name: String,
        first: &'a MetricAverages,
        second: Option<&'a MetricAverages>,
    },
}

/// Renders the chart.
pub fn render_svg(report: &EvalReport) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = draw_chart(&mut out, report);
    out
}

fn chart_rows(report: &EvalReport) -> Vec<ChartRow<'_>> {
    let against = report.against.as_ref();
    let mut rows = vec![ChartRow::Bars {
        name: "total".to_owned(),
        first: &report.overall,
        second: against.map(|against| &against.overall),
    }];
    rows.push(ChartRow::Heading("each factor alone"));
    rows.extend(report.factors.iter().map(|(factor, first)| ChartRow::Bars {
        name: (*factor).to_owned(),
        first,
        second: None,
    }));
    rows.push(ChartRow::Heading("by language"));
    rows.extend(report.languages.iter().map(|(language, first)| ChartRow::Bars {
        name: language.clone(),
        first,
        second: against.and_then(|against| against.languages.get(language)),
    }));
    if !report.tags.is_empty() {
        rows.push(ChartRow::Heading("by tag"));
    }
    rows.extend(report.tags.iter().map(|(tag, first)| ChartRow::Bars {
        name: tag.clone(),
        first,
        second: against.and_then(|against| against.tags.get(tag)),
    }));
    rows
}

fn draw_chart(out: &mut String, report: &EvalReport) -> std::fmt::Result {
    let rows = chart_rows(report);
    let height_of = |row: &ChartRow<'_>| {
        if matches!(row, ChartRow::Heading(_)) {
            HEADING_HEIGHT
        } else {
            ROW_HEIGHT
        }
    };
    let bottom = TOP_MARGIN + rows.iter().map(height_of).sum::<usize>();
    let width = MARGIN + LABELS_WIDTH + 3 * (PANEL_WIDTH + PANEL_GAP);
    let height = bottom + MARGIN;
    let title = format!(
        "{}: {} questions, {} facts; embedder {}",
        report.set, report.questions, report.facts, report.settings.embedder
    );
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"DejaVu Sans, Noto Sans CJK KR, Verdana, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>",
        title = escape_xml(&title)
    )?;
    let bold = "font-size=\"16\" font-weight=\"bold\"";
    draw_text(out, MARGIN, 28, "#1a1a1a", bold, &title)?;
    draw_legend(out, report)?;
    for (panel, name) in panel_titles(report.k).into_iter().enumerate() {
        let x = panel_x(panel);
        draw_text(out, x, TOP_MARGIN - 10, "#1a1a1a", "font-weight=\"bold\"", &name)?;
        for quarter in 0..=4 {
            let grid_x = x + PANEL_WIDTH * quarter / 4;
            let top = TOP_MARGIN - 4;
            writeln!(
                out,
                "<line x1=\"{grid_x}\" y1=\"{top}\" x2=\"{grid_x}\" y2=\"{bottom}\" stroke=\"#e3e3e3\"/>"
            )?;
        }
    }
    let mut y = TOP_MARGIN;
    for row in &rows {
        match row {
            ChartRow::Heading(name) => draw_text(out, MARGIN, y + 21, "#1a1a1a", "font-weight=\"bold\"", name)?,
            ChartRow::Bars { name, first, second } => draw_bars(out, y, name, first, *second)?,
        }
        y += height_of(row);
    }
    writeln!(out, "</svg>")
}

fn panel_titles(k: usize) -> [String; 3] {
    [format!("Recall@{k}"), format!("Hit@{k}"), "MRR".to_owned()]
}

const fn panel_x(panel: usize) -> usize {
    MARGIN + LABELS_WIDTH + panel * (PANEL_WIDTH + PANEL_GAP)
}

/// Draws the colour of each of the two settings, and the significance of their difference.
fn draw_legend(out: &mut String, report: &EvalReport) -> std::fmt::Result {
    let Some(against) = &report.against else {
        return Ok(());
    };
    let second = format!(
        "{} (MRR {:+.3}, p = {:.4})",
        against.settings.name, against.mrr.difference, against.mrr.p
    );
    for (x, colour, name) in [
        (MARGIN, FIRST_COLOUR, &report.settings.name),
        (panel_x(0) + PANEL_WIDTH, SECOND_COLOUR, &second),
    ] {
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"43\" width=\"14\" height=\"12\" fill=\"{colour}\"/>"
        )?;
        draw_text(out, x + 20, 54, "#1a1a1a", "", name)?;
    }
    Ok(())
}

fn draw_bars(
    out: &mut String,
    y: usize,
    name: &str,
    first: &MetricAverages,
    second: Option<&MetricAverages>,
) -> std::fmt::Result {
    let label = format!("{name} ({})", first.questions);
    draw_text(out, MARGIN + 12, y + 17, "#1a1a1a", "", &label)?;
    let figures = |averages: &MetricAverages| [averages.recall, averages.hit, averages.mrr];
    let small = "font-size=\"10\"";
    // The colours of bar and number, the top and the height of the bar, and the base line and the style of the number.
    let bars = match second {
        None => vec![(figures(first), FIRST_COLOUR, "#1a1a1a", 4, 17, 17, "")],
        Some(second) => vec![
            (figures(first), FIRST_COLOUR, FIRST_COLOUR, 2, 10, 11, small),
            (figures(second), SECOND_COLOUR, "#a85f14", 13, 10, 22, small),
        ],
    };
    for (figures, colour, ink, top, height, base, style) in bars {
        for (panel, value) in figures.into_iter().enumerate() {
            let x = panel_x(panel);
            draw_bar(out, x, y + top, height, colour, value)?;
            let number = format!("{value:.3}");
            draw_text(out, x + bar_length(value) + 6, y + base, ink, style, &number)?;
        }
    }
    Ok(())
}

fn draw_bar(out: &mut String, x: usize, y: usize, height: usize, colour: &str, value: f64) -> std::fmt::Result {
    let width = bar_length(value);
    writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>"
    )
}

/// Returns the length of a bar in pixels; `value` in [0, 1].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most the width of a panel"
)]
fn bar_length(value: f64) -> usize {
    (value.clamp(0.0, 1.0) * PANEL_WIDTH as f64).round() as usize
}

fn draw_text(out: &mut String, x: usize, y: usize, colour: &str, style: &str, text: &str) -> std::fmt::Result {
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\" {style}>{}</text>",
        escape_xml(text)
    )
}

/// Escapes text for XML and drops characters that XML forbids.
fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_text_is_escaped_and_bars_stay_in_their_panel() {
        assert_eq!(escape_xml("a<b>&\"\u{0}c"), "a&lt;b&gt;&amp;&quot;c");
        assert_eq!(
            (bar_length(0.0), bar_length(0.5), bar_length(1.0), bar_length(7.0)),
            (0, PANEL_WIDTH / 2, PANEL_WIDTH, PANEL_WIDTH)
        );
    }
}
