//! The rules for the settings of a world's state.

use std::collections::BTreeMap;

use super::text::{display_name, one_line_label};
use colloquy_memory::{
    attributes::{
        AttributeAuthor, AttributeRule, AttributeType, MAX_ATTRIBUTE_NUMBER, MAX_ATTRIBUTE_VALUES, MAX_ATTRIBUTES,
        find_rule,
    },
    game_clock::ClockSettings,
    state_block::MAX_NAME_CHARS,
    vocabulary::MAX_WORD_CHARS,
};

/// Most places with links, and most links of a place.
const MAX_PLACES: usize = 500;
const MAX_LINKS: usize = 50;

fn check(holds: bool, rule: impl FnOnce() -> String) -> garde::Result {
    if holds { Ok(()) } else { Err(garde::Error::new(rule())) }
}

/// For `#[garde(custom(place_links))]`: bounded lists of place names.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn place_links(links: &Option<BTreeMap<String, Vec<String>>>, (): &()) -> garde::Result {
    let Some(links) = links else { return Ok(()) };
    check(links.len() <= MAX_PLACES, || {
        format!("length is greater than {MAX_PLACES}")
    })?;
    for (place, neighbours) in links {
        check(neighbours.len() <= MAX_LINKS, || {
            format!("`{place}` has more than {MAX_LINKS} links")
        })?;
        for name in neighbours.iter().chain([place]) {
            display_name(name, &())?;
            let is_short = name.chars().count() <= MAX_NAME_CHARS;
            check(is_short, || {
                format!("a place is longer than {MAX_NAME_CHARS} characters")
            })?;
        }
    }
    Ok(())
}

/// For `#[garde(custom(changed_names))]`: names of items and places.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn changed_names(names: &Option<BTreeMap<String, AttributeAuthor>>, (): &()) -> garde::Result {
    let Some(names) = names else { return Ok(()) };
    check(names.len() <= MAX_PLACES, || {
        format!("length is greater than {MAX_PLACES}")
    })?;
    for name in names.keys() {
        display_name(name, &())?;
        check(name.chars().count() <= MAX_NAME_CHARS, || {
            format!("a name is longer than {MAX_NAME_CHARS} characters")
        })?;
    }
    Ok(())
}

/// For `#[garde(custom(attribute_rules))]`: attributes that can hold a value.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn attribute_rules(rules: &Option<Vec<AttributeRule>>, (): &()) -> garde::Result {
    let Some(rules) = rules else { return Ok(()) };
    check(rules.len() <= MAX_ATTRIBUTES, || {
        format!("length is greater than {MAX_ATTRIBUTES}")
    })?;
    for (index, rule) in rules.iter().enumerate() {
        let name = &rule.name;
        display_name(name, &())?;
        check(name.chars().count() <= MAX_WORD_CHARS, || {
            format!("the name of an attribute is longer than {MAX_WORD_CHARS} characters")
        })?;
        check(find_rule(&rules[..index], name).is_none(), || {
            format!("`{name}` is there twice")
        })?;
        check_values(rule)?;
        check_numbers(rule)?;
        if let Some(initial) = &rule.initial {
            rule.checked_value(initial)
                .map_err(|error| garde::Error::new(format!("`initial` of `{name}` {error}")))?;
        }
    }
    Ok(())
}

/// For `#[garde(custom(clock_settings))]`: a clock that can run.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
pub fn clock_settings(clock: &Option<ClockSettings>, (): &()) -> garde::Result {
    let fault = clock.as_ref().and_then(ClockSettings::find_fault);
    fault.map_or(Ok(()), |fault| Err(garde::Error::new(fault)))
}

fn check_values(rule: &AttributeRule) -> garde::Result {
    let name = &rule.name;
    let values = &rule.values;
    let is_text = rule.value_type == AttributeType::Text;
    check(is_text != values.is_empty(), || {
        format!("`values` of `{name}` are needed for a text, and only for a text")
    })?;
    check(values.len() <= MAX_ATTRIBUTE_VALUES, || {
        format!("`{name}` has more than {MAX_ATTRIBUTE_VALUES} values")
    })?;
    for value in values {
        one_line_label(value, &())?;
        let is_short = value.chars().count() <= MAX_WORD_CHARS;
        check(is_short, || {
            format!("a value of `{name}` is longer than {MAX_WORD_CHARS} characters")
        })?;
    }
    Ok(())
}

fn check_numbers(rule: &AttributeRule) -> garde::Result {
    let name = &rule.name;
    let numbers = [rule.min, rule.max, rule.max_delta];
    let is_number = rule.value_type == AttributeType::Number;
    let limits = numbers.into_iter().flatten();
    check(is_number || limits.clone().next().is_none(), || {
        format!("`min`, `max` and `max_delta` of `{name}` are only for numbers")
    })?;
    check(
        limits.clone().all(|number| number.abs() <= MAX_ATTRIBUTE_NUMBER),
        || format!("a number of `{name}` is greater than {MAX_ATTRIBUTE_NUMBER}"),
    )?;
    let (min, max) = rule.bounds();
    check(!is_number || min < max, || {
        format!("`min` of `{name}` is not below `max`")
    })?;
    check(rule.max_delta.is_none_or(|max_delta| max_delta >= 0.0), || {
        format!("`max_delta` of `{name}` is below 0")
    })
}
