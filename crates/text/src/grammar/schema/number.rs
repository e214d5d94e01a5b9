//! Sets of numbers: an interval, integers only or not, multiples of a step.
//!
//! Owns the choice of which numbers of a set are written, so that each one is read back exactly.
//! Knows nothing of keywords.

use serde_json::{Value, json};

/// The largest number written, even if a bound permits more.
const LIMIT: f64 = 1e18;
/// The smallest distance from an exclusive bound.
const NEAR: f64 = 1e-15;
/// Integers up to here are exact in an `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// An end of an interval; an open one excludes its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub value: f64,
    pub open: bool,
}

/// The step that numbers must be multiples of: `digits` divided by ten `places` times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Multiple {
    digits: u64,
    places: u32,
}

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Number {
    pub low: Option<Bound>,
    pub high: Option<Bound>,
    pub whole: bool,
    pub step: Option<Multiple>,
}

impl Multiple {
    /// The step for a JSON number, if it is positive and llguidance computes the same one.
    pub(super) fn new(number: &serde_json::Number) -> Option<Self> {
        let text = number.to_string();
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: u64 = format!("{whole}{fraction}").parse().ok()?;
        let mut places = fraction.len() as i64 - exponent.parse::<i64>().ok()?;
        while places > 0 && digits.is_multiple_of(10) && digits > 0 {
            (digits, places) = (digits / 10, places - 1);
        }
        while places < 0 {
            (digits, places) = (digits.checked_mul(10)?, places + 1);
        }
        let step = Multiple { digits, places: places as u32 };
        (digits > 0 && step.is_kept()).then_some(step)
    }

    /// Whether llguidance, which multiplies an `f64` by ten until it is an integer, computes this
    /// step and can divide by it.
    /// Its remainders have 32 bits and must hold one more digit.
    fn is_kept(self) -> bool {
        let (mut value, mut places) = (self.value(), 0);
        while value.fract() != 0.0 && places < 20 {
            (value, places) = (value * 10.0, places + 1);
        }
        let most = 10u64
            .checked_pow(self.places)
            .and_then(|unit| self.digits.checked_mul(10)?.checked_add(9 * unit));
        places == self.places
            && value == self.digits as f64
            && most.is_some_and(|most| most <= u64::from(u32::MAX))
    }

    /// Whether a decimal is a multiple of this step.
    fn divides(self, decimal: &str) -> bool {
        let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
        let places = self.places as usize;
        let units = format!("{whole}{fraction:0<places$}").parse::<i128>();
        fraction.len() <= places && units.is_ok_and(|units| units % i128::from(self.digits) == 0)
    }

    /// The steps of those multiples that have all decimal places, one fewer, and so on.
    /// In llguidance only multiples with all places of the step count.
    fn by_places(self) -> impl Iterator<Item = Multiple> {
        (0..=self.places).filter_map(move |places| self.meet(Multiple { digits: 1, places }))
    }

    fn value(self) -> f64 {
        // Parsed from text, since a division may round differently.
        format!("{}e-{}", self.digits, self.places).parse().unwrap_or(f64::NAN)
    }

    /// The step of the common multiples of both.
    fn meet(self, other: Multiple) -> Option<Self> {
        let places = self.places.max(other.places);
        let scaled = |step: Multiple| step.digits.checked_mul(10u64.checked_pow(places - step.places)?);
        let (a, b) = (scaled(self)?, scaled(other)?);
        let mut digits = (a / divisor(a, b)).checked_mul(b)?;
        let mut places = places;
        while places > 0 && digits.is_multiple_of(10) {
            (digits, places) = (digits / 10, places - 1);
        }
        let step = Multiple { digits, places };
        step.is_kept().then_some(step)
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl Number {
    /// The set of one number; `None` if an `f64` can't represent it.
    pub(super) fn point(number: &serde_json::Number) -> Option<Self> {
        let bound = closed(exact(number)?);
        Some(Number { low: bound, high: bound, ..Number::default() })
    }

    /// The number, if the set has only one.
    pub(super) fn single(&self) -> Option<f64> {
        let (low, high) = (self.low?, self.high?);
        (low == high && !low.open && self.step.is_none()).then_some(low.value)
    }

    /// The intersection of two sets; `None` if their steps can't be combined.
    pub(super) fn meet(&self, other: &Number) -> Option<Self> {
        let low = either(self.low, other.low, |a, b| {
            if a.value > b.value || (a.value == b.value && a.open) { a } else { b }
        });
        let high = either(self.high, other.high, |a, b| {
            if a.value < b.value || (a.value == b.value && a.open) { a } else { b }
        });
        let step = match (self.step, other.step) {
            (Some(a), Some(b)) => Some(a.meet(b)?),
            (a, b) => a.or(b),
        };
        Some(Number { low, high, whole: self.whole || other.whole, step })
    }

    /// Whether the set is certainly empty.
    pub(super) fn is_empty(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        if self.whole {
            return whole_above(low) > whole_below(high);
        }
        low.value > high.value || (low.value == high.value && (low.open || high.open))
    }

    /// The complement; `None` if no sets of this kind represent it.
    pub(super) fn complement(&self) -> Option<Vec<Self>> {
        if self.whole || self.step.is_some() {
            return None;
        }
        let turned = |bound: Bound| Some(Bound { open: !bound.open, ..bound });
        let below = self.low.map(|low| Number { high: turned(low), ..Number::default() });
        let above = self.high.map(|high| Number { low: turned(high), ..Number::default() });
        Some(below.into_iter().chain(above).collect())
    }

    /// The set as schemas with inclusive bounds, negative numbers separate.
    /// A missing bound becomes the limit of exact integers in an `f64`; a bound beyond 10^18 is
    /// reduced to it.
    /// Only multiples that are exact in an `f64` are included.
    /// Numbers closer than 10^-15 to an open bound or below zero are left out.
    pub(super) fn schemas(&self) -> Vec<Value> {
        if let Some(value) = self.single() {
            return vec![json!({"const": number(value)})];
        }
        let edge = (EXACT - 1.0) / 10f64.powi(self.step.map_or(0, |step| step.places as i32));
        let is_far = |bound: Option<Bound>| bound.is_some_and(|bound| bound.value.abs() >= edge);
        // Beyond, a reader that uses `f64` may get another number, which isn't a multiple.
        let far = self.step.is_none() && (is_far(self.low) || is_far(self.high));
        let most = if far { LIMIT } else { edge };
        let drawn_in = |bound: Option<Bound>, edge: f64| {
            let bound = bound.unwrap_or(Bound { value: edge, open: false });
            Bound { value: bound.value.abs().min(most).copysign(bound.value), ..bound }
        };
        if self.low.is_some_and(|low| low.value > most) || self.high.is_some_and(|high| high.value < -most) {
            return Vec::new();
        }
        let (low, high) = (drawn_in(self.low, -most), drawn_in(self.high, most));
        // Multiples of an integer step are integers.
        let whole = self.whole || self.step.is_some_and(|step| step.places == 0);
        let (low, high, kind, below_zero) = if whole {
            (whole_above(low), whole_below(high), "integer", -1.0)
        } else {
            (above(low), below(high), "number", -NEAR)
        };
        let ranges = [(low, high.min(below_zero)), (low.max(0.0), high)];
        let mut schemas = Vec::new();
        for (low, high) in ranges.into_iter().filter(|(low, high)| low <= high) {
            let mut schema = json!({"type": kind, "minimum": number(low), "maximum": number(high)});
            let Some(step) = self.step else {
                schemas.push(schema);
                continue;
            };
            for step in step.by_places() {
                schema["multipleOf"] = number(step.value());
                schemas.push(schema.clone());
            }
            let inside = |value: f64| low <= value && value <= high;
            let shorter = if low < 0.0 { shorter(low) } else { shorter(high) };
            let shorter = shorter.into_iter().filter(|(text, value)| inside(*value) && step.divides(text));
            schemas.extend(shorter.map(|(_, value)| json!({"const": number(value)})));
        }
        schemas
    }
}

/// The truncations of a decimal to fewer places.
/// Those of a bound aren't accepted by llguidance.
fn shorter(bound: f64) -> Vec<(String, f64)> {
    let text = bound.to_string();
    let point = text.find('.').unwrap_or(text.len());
    let prefixes = (point + 2..text.len()).map(|end| text[..end].to_owned());
    prefixes.filter_map(|text| text.parse().ok().map(|value| (text, value))).collect()
}

fn closed(value: f64) -> Option<Bound> {
    Some(Bound { value, open: false })
}

fn either(a: Option<Bound>, b: Option<Bound>, choose: impl Fn(Bound, Bound) -> Bound) -> Option<Bound> {
    match (a, b) {
        (Some(a), Some(b)) => Some(choose(a, b)),
        (a, b) => a.or(b),
    }
}

/// A number as an `f64`, if the conversion is exact.
/// Beyond 10^18, where no numbers are written, it may be inexact.
pub(super) fn exact(number: &serde_json::Number) -> Option<f64> {
    let value = number.as_f64().filter(|value| value.is_finite())?;
    let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    (whole.is_none_or(|whole| whole == value as i128)).then_some(if value == 0.0 { 0.0 } else { value })
}

fn whole_above(bound: Bound) -> f64 {
    match bound {
        Bound { value, open: false } => value.ceil(),
        Bound { value, .. } if value.abs() < EXACT => value.floor() + 1.0,
        Bound { value, .. } => value.next_up(),
    }
}

fn whole_below(bound: Bound) -> f64 {
    -whole_above(Bound { value: -bound.value, ..bound })
}

/// The largest number that is safe as an inclusive bound below `bound`: printing it may round it,
/// but not onto the bound.
fn below(bound: Bound) -> f64 {
    let gap = bound.value.abs().next_up() - bound.value.abs();
    if bound.open { bound.value - gap.max(NEAR) } else { bound.value }
}

fn above(bound: Bound) -> f64 {
    -below(Bound { value: -bound.value, ..bound })
}

/// A JSON number; integers have no point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e18 { (value as i64).into() } else { value.into() }
}

/// A bound of an interval as an `f64` inside of it; `None` if it would have to lie outside and the
/// difference matters.
pub(super) fn bound(number: &serde_json::Number, low: bool) -> Option<f64> {
    let near = || {
        let value = number.as_f64().filter(|value| value.abs() >= LIMIT)?;
        Some(if low { value.next_up() } else { value.next_down() })
    };
    exact(number).or_else(near)
}
