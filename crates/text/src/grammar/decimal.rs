//! The decimals of an interval as a regular expression.
//!
//! Decimals are counted in units of their last place, so that bounds are exact.
//! No decimal is rounded, and no prefix of a decimal counts as one unless it is permitted itself.

use serde_json::Number;

/// Most digits of a fraction: enough to distinguish any two `f64`.
pub(super) const PLACES: usize = 17;
const UNIT: i128 = 10i128.pow(PLACES as u32);

/// An expression for the decimals from `low` to `high`, both included; `None` if there are none.
/// Integers have no fraction, other decimals one of up to [`PLACES`] digits or none.
/// There is no exponent, no `-0` and no superfluous zero before the point.
pub(super) fn between(low: &Number, high: &Number, whole: bool) -> Option<String> {
    let (low, high) = (units(low, true)?, units(high, false)?);
    let least = if whole { UNIT } else { 1 };
    let mut options = Vec::new();
    if low < 0 {
        options.extend(above_zero(least.max(-high), -low, whole).map(|text| format!("-{text}")));
    }
    if high >= 0 {
        options.extend(above_zero(low.max(0), high, whole));
    }
    (!options.is_empty()).then(|| choice(&options))
}

/// A number in units of the last decimal place.
/// A number with more places is rounded into the interval that it bounds.
fn units(number: &Number, low: bool) -> Option<i128> {
    // `f64` prints without an exponent.
    let text =
        number.as_i64().map(|whole| whole.to_string()).or(number.as_f64().map(|value| value.to_string()))?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text.as_str()), |text| (true, text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (kept, beyond) = fraction.split_at(fraction.len().min(PLACES));
    let kept: i128 = format!("{whole}{kept:0<PLACES$}").parse().ok()?;
    let outward = low != negative && beyond.bytes().any(|digit| digit != b'0');
    let size = kept + i128::from(outward);
    Some(if negative { -size } else { size })
}

fn above_zero(low: i128, high: i128, whole: bool) -> Option<String> {
    let (first, last) = (low.div_euclid(UNIT), high.div_euclid(UNIT));
    let (above, below) = (low.rem_euclid(UNIT), high.rem_euclid(UNIT));
    if whole {
        let first = first + i128::from(above > 0);
        return (first <= last).then(|| integers(first, last));
    }
    if low > high {
        return None;
    }
    if first == last {
        return Some(format!("{first}{}", fraction(above, below)));
    }
    let (mut options, mut from, mut to) = (Vec::new(), first, last);
    if above > 0 {
        options.push(format!("{first}{}", fraction(above, UNIT - 1)));
        from += 1;
    }
    if below < UNIT - 1 {
        options.push(format!("{last}{}", fraction(0, below)));
        to -= 1;
    }
    if from <= to {
        options.push(format!("{}{}", integers(from, to), fraction(0, UNIT - 1)));
    }
    Some(choice(&options))
}

/// The integers from `low` to `high`, grouped by length.
fn integers(low: i128, high: i128) -> String {
    let (mut options, mut from) = (Vec::new(), low);
    while from <= high {
        let digits = from.to_string();
        let to = high.min(10i128.pow(digits.len() as u32) - 1);
        options.push(digits_between(digits.as_bytes(), to.to_string().as_bytes(), false));
        from = to + 1;
    }
    choice(&options)
}

/// A point and digits, or nothing if the interval contains that.
fn fraction(low: i128, high: i128) -> String {
    let digits = |units: i128| format!("{units:0PLACES$}");
    let text = format!("\\.{}", digits_between(digits(low).as_bytes(), digits(high).as_bytes(), true));
    if low == 0 { format!("(?:{text})?") } else { text }
}

/// Sequences of digits from `low` to `high`, which have the same length.
/// In a fraction trailing zeros may be omitted, but not all digits.
fn digits_between(low: &[u8], high: &[u8], fraction: bool) -> String {
    let (Some((&first, low)), Some((&last, high))) = (low.split_first(), high.split_first()) else {
        return String::new();
    };
    let left = low.len();
    let is_least = low.iter().all(|&digit| digit == b'0');
    let is_most = high.iter().all(|&digit| digit == b'9');
    let any = match (left, fraction) {
        (0, _) => String::new(),
        (_, true) => format!("[0-9]{{0,{left}}}"),
        (_, false) => format!("[0-9]{{{left}}}"),
    };
    let behind = |digit: u8, low: &[u8], high: &[u8]| {
        let rest = digits_between(low, high, fraction);
        let optional = fraction && !rest.is_empty() && low.iter().all(|&digit| digit == b'0');
        format!("{}{rest}{}", digit as char, if optional { "?" } else { "" })
    };
    if first == last && !(is_least && is_most) {
        return format!("(?:{})", behind(first, low, high));
    }
    let (mut options, mut from, mut to) = (Vec::new(), first, last);
    if !is_least {
        options.push(behind(first, low, &vec![b'9'; left]));
        from += 1;
    }
    if !is_most {
        options.push(behind(last, &vec![b'0'; left], high));
        to -= 1;
    }
    if from <= to {
        options.push(format!("[{}-{}]{any}", from as char, to as char));
    }
    choice(&options)
}

fn choice(options: &[String]) -> String {
    format!("(?:{})", options.join("|"))
}
