//! A report as an SVG: one row per total, factor, language and tag, one panel per measure.

use std::fmt::Write as _;

use super::{measures::Averages, report::Report};

const ROW: usize = 26;
const HEADING: usize = 30;
const TOP: usize = 96;
const LABELS: usize = 230;
const PANEL: usize = 190;
const GAP: usize = 56;
const MARGIN: usize = 24;
/// Of the settings that were asked, and of those they are held against.
const FIRST: &str = "#1f5fa8";
const SECOND: &str = "#d9822b";

/// A row of the chart.
enum Row<'a> {
    Heading(&'static str),
    Bars {
        name: String,
        first: &'a Averages,
        second: Option<&'a Averages>,
    },
}

/// The chart.
pub(super) fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing into a text does not fail.
    let _ = draw(&mut out, report);
    out
}

fn rows(report: &Report) -> Vec<Row<'_>> {
    let against = report.against.as_ref();
    let mut rows = vec![Row::Bars {
        name: "total".to_owned(),
        first: &report.overall,
        second: against.map(|against| &against.overall),
    }];
    rows.push(Row::Heading("each factor alone"));
    rows.extend(report.factors.iter().map(|(factor, first)| Row::Bars {
        name: (*factor).to_owned(),
        first,
        second: None,
    }));
    rows.push(Row::Heading("by language"));
    rows.extend(report.languages.iter().map(|(language, first)| Row::Bars {
        name: language.clone(),
        first,
        second: against.and_then(|against| against.languages.get(language)),
    }));
    if !report.tags.is_empty() {
        rows.push(Row::Heading("by tag"));
    }
    rows.extend(report.tags.iter().map(|(tag, first)| Row::Bars {
        name: tag.clone(),
        first,
        second: against.and_then(|against| against.tags.get(tag)),
    }));
    rows
}

fn draw(out: &mut String, report: &Report) -> std::fmt::Result {
    let rows = rows(report);
    let height_of = |row: &Row<'_>| if matches!(row, Row::Heading(_)) { HEADING } else { ROW };
    let bottom = TOP + rows.iter().map(height_of).sum::<usize>();
    let (width, height) = (MARGIN + LABELS + 3 * (PANEL + GAP), bottom + MARGIN);
    let title = format!(
        "{}: {} questions, {} facts; embedder {}",
        report.set, report.questions, report.facts, report.settings.embedder
    );
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"DejaVu Sans, Noto Sans CJK KR, Verdana, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>",
        title = escaped(&title)
    )?;
    text(
        out,
        MARGIN,
        28,
        "#1a1a1a",
        "font-size=\"16\" font-weight=\"bold\"",
        &title,
    )?;
    legend(out, report)?;
    for (panel, name) in panels(report.k).into_iter().enumerate() {
        let x = panel_x(panel);
        text(out, x, TOP - 10, "#1a1a1a", "font-weight=\"bold\"", &name)?;
        for quarter in 0..=4 {
            let at = x + PANEL * quarter / 4;
            let top = TOP - 4;
            writeln!(
                out,
                "<line x1=\"{at}\" y1=\"{top}\" x2=\"{at}\" y2=\"{bottom}\" stroke=\"#e3e3e3\"/>"
            )?;
        }
    }
    let mut y = TOP;
    for row in &rows {
        match row {
            Row::Heading(name) => text(out, MARGIN, y + 21, "#1a1a1a", "font-weight=\"bold\"", name)?,
            Row::Bars { name, first, second } => bars(out, y, name, first, *second)?,
        }
        y += height_of(row);
    }
    writeln!(out, "</svg>")
}

fn panels(k: usize) -> [String; 3] {
    [format!("Recall@{k}"), format!("Hit@{k}"), "MRR".to_owned()]
}

const fn panel_x(panel: usize) -> usize {
    MARGIN + LABELS + panel * (PANEL + GAP)
}

/// Which colour is whose, where there are two, and how sure the difference is.
fn legend(out: &mut String, report: &Report) -> std::fmt::Result {
    let Some(against) = &report.against else {
        return Ok(());
    };
    let second = format!(
        "{} (MRR {:+.3}, p = {:.4})",
        against.settings.name, against.mrr.difference, against.mrr.p
    );
    for (x, colour, name) in [
        (MARGIN, FIRST, &report.settings.name),
        (panel_x(0) + PANEL, SECOND, &second),
    ] {
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"43\" width=\"14\" height=\"12\" fill=\"{colour}\"/>"
        )?;
        text(out, x + 20, 54, "#1a1a1a", "", name)?;
    }
    Ok(())
}

fn bars(out: &mut String, y: usize, name: &str, first: &Averages, second: Option<&Averages>) -> std::fmt::Result {
    let label = format!("{name} ({})", first.questions);
    text(out, MARGIN + 12, y + 17, "#1a1a1a", "", &label)?;
    let figures = |averages: &Averages| [averages.recall, averages.hit, averages.mrr];
    let second = second.map(figures);
    for (panel, value) in figures(first).into_iter().enumerate() {
        let x = panel_x(panel);
        let Some(other) = second.map(|second| second[panel]) else {
            bar(out, x, y + 4, 17, FIRST, value)?;
            text(
                out,
                x + length(value) + 6,
                y + 17,
                "#1a1a1a",
                "",
                &format!("{value:.3}"),
            )?;
            continue;
        };
        bar(out, x, y + 2, 10, FIRST, value)?;
        bar(out, x, y + 13, 10, SECOND, other)?;
        text(
            out,
            x + length(value) + 5,
            y + 11,
            FIRST,
            "font-size=\"10\"",
            &format!("{value:.3}"),
        )?;
        text(
            out,
            x + length(other) + 5,
            y + 22,
            "#a85f14",
            "font-size=\"10\"",
            &format!("{other:.3}"),
        )?;
    }
    Ok(())
}

fn bar(out: &mut String, x: usize, y: usize, height: usize, colour: &str, value: f64) -> std::fmt::Result {
    let width = length(value);
    writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>"
    )
}

/// Of a bar, in pixels; `value` in [0, 1].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most the width of a panel"
)]
fn length(value: f64) -> usize {
    (value.clamp(0.0, 1.0) * PANEL as f64).round() as usize
}

fn text(out: &mut String, x: usize, y: usize, colour: &str, style: &str, text: &str) -> std::fmt::Result {
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\" {style}>{}</text>",
        escaped(text)
    )
}

/// For XML; what it does not allow at all is left out.
fn escaped(text: &str) -> String {
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
    fn text_cannot_break_out_and_bars_stay_in_their_panel() {
        assert_eq!(escaped("a<b>&\"\u{0}c"), "a&lt;b&gt;&amp;&quot;c");
        assert_eq!(
            (length(0.0), length(0.5), length(1.0), length(7.0)),
            (0, PANEL / 2, PANEL, PANEL)
        );
    }
}
