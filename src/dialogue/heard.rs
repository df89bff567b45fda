//! How much of a reply was heard, in the units of the caller.

/// A position in a reply's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeardLength {
    /// In Unicode scalar values.
    Chars(usize),
    /// In UTF-16 code units, as C# and JavaScript count.
    Utf16(usize),
}

impl HeardLength {
    /// Returns the number of units, of either kind.
    pub(super) fn units(self) -> usize {
        let (Self::Chars(units) | Self::Utf16(units)) = self;
        units
    }

    /// Returns the same position of `text` in Unicode scalar values. A count inside a surrogate pair is rounded down to
    /// before the pair. A count beyond the end stays as far beyond the end.
    #[must_use]
    pub fn to_scalar_count(self, text: &str) -> usize {
        let units = match self {
            Self::Chars(chars) => return chars,
            Self::Utf16(units) => units,
        };
        let mut remaining_units = units;
        let mut chars = 0;
        for c in text.chars() {
            if remaining_units < c.len_utf16() {
                return chars;
            }
            remaining_units -= c.len_utf16();
            chars += 1;
        }
        chars.saturating_add(remaining_units)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn utf16_counts_become_scalar_counts(text in "[a가😀🍇é]{0,40}") {
            let mut units = 0;
            for (scalars, c) in text.chars().enumerate() {
                prop_assert_eq!(HeardLength::Utf16(units).to_scalar_count(&text), scalars);
                if c.len_utf16() == 2 {
                    prop_assert_eq!(HeardLength::Utf16(units + 1).to_scalar_count(&text), scalars);
                }
                units += c.len_utf16();
            }
            let all = text.chars().count();
            prop_assert_eq!(HeardLength::Utf16(units).to_scalar_count(&text), all);
            prop_assert_eq!(HeardLength::Utf16(units + 3).to_scalar_count(&text), all + 3);
            prop_assert_eq!(HeardLength::Chars(units).to_scalar_count(&text), units);
        }
    }
}
