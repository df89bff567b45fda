//! Questions to the embedder: the length of its vectors, its speed, and the meaning of its similarities.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::report::Check;
use crate::{
    app::uncalibrated_embedder,
    config::{Config, EmbedderSection, InputTypeName},
};
use colloquy_memory::calibration::Calibration;
use colloquy_models::calibration::{CalibrateError, CalibrationReport, measure_shipped_pairs};
use colloquy_ports::embedder::{EmbedAs, Embedder};

/// A turn waits for one embedding, so that a slower one is worth a word, in ms.
const GOOD_EMBEDDING_MS: f64 = 300.0;
/// The share of the scale by which a measured end may differ from the configured end.
const SCALE_TOLERANCE: f32 = 0.25;

/// Asks the configured embedder. `limit` bounds each question.
pub(super) async fn ask_embedder(config: &Config, limit: Duration) -> Vec<Check> {
    let section = &config.embedder;
    let name = section.model.clone().unwrap_or_else(|| "offline".to_owned());
    let mut checks = if section.base_url.is_none() {
        vec![
            Check::warn(
                "embedder",
                "no embedder is configured: memories are found by words, not by meaning",
            )
            .advise("Set embedder.base_url and embedder.model. A model server on this machine may serve both models."),
        ]
    } else {
        ask_endpoint(config, limit).await
    };
    for check in &mut checks {
        name.clone_into(&mut check.subject);
    }
    checks
}

async fn ask_endpoint(config: &Config, limit: Duration) -> Vec<Check> {
    let mut probed_config = config.clone();
    // The endpoint is asked for the length, so that a wrong length in the configuration is found.
    probed_config.embedder.dimensions = 0;
    let embedder = match timeout(limit, uncalibrated_embedder(&probed_config)).await {
        Ok(Ok(embedder)) => embedder,
        Ok(Err(error)) => return vec![Check::fail("embedder", format!("{error:#}")).advise(UNREACHABLE)],
        Err(_) => {
            let finding = format!("no vector within {} s", limit.as_secs());
            return vec![Check::fail("embedder", finding).advise(UNREACHABLE)];
        }
    };
    let mut checks = vec![judge_dimensions(&config.embedder, embedder.info().dimensions)];
    checks.extend(measure_speed(&*embedder, limit).await);
    let measured = timeout(limit.saturating_mul(4), measure_shipped_pairs(&*embedder)).await;
    checks.push(match measured {
        Ok(measured) => judge_scale(&config.embedder, &measured),
        Err(_) => Check::warn("similarity", "the measurement did not end in time").advise("Run `colloquy calibrate`."),
    });
    checks
}

const UNREACHABLE: &str = "Check embedder.base_url, embedder.model and embedder.api_key; most base URLs end in /v1.";

async fn measure_speed(embedder: &dyn Embedder, limit: Duration) -> Option<Check> {
    let text = ["What fruit do I like?".to_owned()];
    let started_at = Instant::now();
    timeout(limit, embedder.embed_texts(EmbedAs::Query, &text))
        .await
        .ok()?
        .ok()?;
    Some(judge_speed(started_at.elapsed().as_secs_f64() * 1e3))
}

fn judge_speed(took_ms: f64) -> Check {
    let finding = format!("a line is embedded in {took_ms:.0} ms");
    if took_ms <= GOOD_EMBEDDING_MS {
        return Check::ok("embedding", finding);
    }
    Check::warn("embedding", finding).advise("Each turn waits for it: use a nearer or a smaller embedder.")
}

/// Compares the configured length of vectors with the endpoint's.
fn judge_dimensions(section: &EmbedderSection, dimensions: usize) -> Check {
    match section.dimensions {
        0 => Check::ok(
            "dimensions",
            format!("vectors of {dimensions}; embedder.dimensions = {dimensions} would spare a question at each start"),
        ),
        configured if configured == dimensions => Check::ok("dimensions", format!("vectors of {dimensions}")),
        configured => Check::fail(
            "dimensions",
            format!("vectors of {dimensions}, where embedder.dimensions says {configured}"),
        )
        .advise("No fact would be embedded.")
        .change("embedder.dimensions", dimensions),
    }
}

/// Compares the configured or known calibration with a measurement.
fn judge_scale(section: &EmbedderSection, measured: &Result<CalibrationReport, CalibrateError>) -> Check {
    let name = "similarity";
    let model = section.model.as_deref().unwrap_or_default();
    let measured = match measured {
        Ok(measured) => measured,
        Err(error) => {
            let check = Check::fail(name, error.to_string());
            return if lacks_prefixes(section) {
                check
                    .advise("The model's questions and passages need prefixes.")
                    .change("embedder.input_type", "prefix")
            } else {
                check.advise("Use another embedder: its vectors do not tell what belongs together.")
            };
        }
    };
    let calibration = section.calibration.or_else(|| Calibration::preset_for_model(model));
    let Some(calibration) = calibration else {
        let check = Check::fail(
            name,
            "there is no calibration for this model, so the server does not start",
        );
        return with_calibration(check, &measured.calibration);
    };
    if lacks_prefixes(section) {
        return Check::warn(
            name,
            "a model of this name expects prefixes before questions and passages",
        )
        .change("embedder.input_type", "prefix");
    }
    let scale = calibration.ceiling - calibration.floor;
    let differs = |measured: f32, configured: f32| (measured - configured).abs() > scale * SCALE_TOLERANCE;
    let measured_calibration = &measured.calibration;
    if differs(measured_calibration.floor, calibration.floor)
        || differs(measured_calibration.ceiling, calibration.ceiling)
    {
        let finding = format!(
            "unrelated texts are at {:.2} and paraphrases at {:.2}, where {:.2} and {:.2} are set",
            measured_calibration.floor, measured_calibration.ceiling, calibration.floor, calibration.ceiling
        );
        return with_calibration(Check::warn(name, finding), measured_calibration);
    }
    Check::ok(
        name,
        format!(
            "unrelated texts are at {:.2} and paraphrases at {:.2}; {:.0} % of pairs in the right order",
            measured_calibration.floor,
            measured_calibration.ceiling,
            measured.separation * 100.0
        ),
    )
}

/// True for a model that is trained with prefixes, which it does not get.
fn lacks_prefixes(section: &EmbedderSection) -> bool {
    let model = section.model.as_deref().unwrap_or_default().to_lowercase();
    // e5 models are trained with `query: ` and `passage: `, which are the defaults of the settings.
    model.contains("e5-") && section.input_type == InputTypeName::None
}

fn with_calibration(mut check: Check, measured: &Calibration) -> Check {
    let rounded = |value: f32| (f64::from(value) * 1e3).round() / 1e3;
    let mut values = vec![
        ("floor", Some(measured.floor)),
        ("ceiling", Some(measured.ceiling)),
        ("answer", measured.answer),
        ("same", Some(measured.same)),
        ("related", Some(measured.related)),
    ];
    values.retain(|(_, value)| value.is_some());
    for (key, value) in values {
        check = check.change(
            format!("embedder.calibration.{key}"),
            rounded(value.unwrap_or_default()),
        );
    }
    check
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::report::Verdict, *};
    use colloquy_memory::calibration::FitError;
    use colloquy_models::calibration::CosineSpread;

    fn section(model: &str) -> EmbedderSection {
        EmbedderSection {
            base_url: Some("http://127.0.0.1:9/v1".into()),
            model: Some(model.into()),
            ..Config::embedded_defaults().embedder
        }
    }

    fn measured(floor: f32, ceiling: f32) -> CalibrationReport {
        let spread = CosineSpread {
            pairs: 20,
            low: floor,
            median: floor,
            high: floor,
        };
        CalibrationReport {
            model: "m".into(),
            dimensions: 384,
            calibration: Calibration {
                floor,
                ceiling,
                answer: None,
                ..Calibration::IDENTITY
            },
            same: spread,
            related: spread,
            unrelated: spread,
            separation: 0.97,
            related_separation: 0.9,
        }
    }

    #[test]
    fn wrong_length_of_vectors_fails_with_the_right_one() {
        let mut section = section("text-embedding-3-small");
        assert_eq!(judge_dimensions(&section, 384).verdict, Verdict::Ok);
        section.dimensions = 384;
        assert_eq!(judge_dimensions(&section, 384).verdict, Verdict::Ok);
        section.dimensions = 768;
        let check = judge_dimensions(&section, 384);
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(check.changes[0].key, "embedder.dimensions");
        assert_eq!(check.changes[0].value, 384);
    }

    #[test]
    fn scale_that_differs_from_the_measurement_is_changed() {
        let configured = section("text-embedding-3-small");
        assert_eq!(judge_scale(&configured, &Ok(measured(0.12, 0.66))).verdict, Verdict::Ok);
        let check = judge_scale(&configured, &Ok(measured(0.5, 0.9)));
        assert_eq!(check.verdict, Verdict::Warn);
        let keys: Vec<&str> = check.changes.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "embedder.calibration.floor",
                "embedder.calibration.ceiling",
                "embedder.calibration.same",
                "embedder.calibration.related"
            ]
        );
        assert_eq!(check.changes[0].value, 0.5);
        let unknown = judge_scale(&section("nameless"), &Ok(measured(0.5, 0.9)));
        assert_eq!((unknown.verdict, unknown.changes.len()), (Verdict::Fail, 4));
    }

    #[test]
    fn embedder_without_prefixes_gets_them() {
        let blind = Err(CalibrateError::Fit(FitError::SeparatesNothing {
            auc: 0.5,
            needed: 0.7,
        }));
        let check = judge_scale(&section("intfloat/multilingual-e5-small"), &blind);
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(check.changes[0].value, "prefix");
        let check = judge_scale(&section("intfloat/multilingual-e5-small"), &Ok(measured(0.8, 0.95)));
        assert_eq!((check.verdict, check.changes.len()), (Verdict::Warn, 1));
        let check = judge_scale(&section("text-embedding-3-small"), &blind);
        assert_eq!((check.verdict, check.changes.len()), (Verdict::Fail, 0));
    }

    #[test]
    fn slow_embedding_is_noticed() {
        assert_eq!(judge_speed(20.0).verdict, Verdict::Ok);
        assert_eq!(judge_speed(900.0).verdict, Verdict::Warn);
    }
}
