//! Prices of tokens, per million.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of tokens that a price refers to.
const MILLION: f64 = 1e6;

/// The price of a million tokens, in any currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Price of prompt tokens that weren't cached.
    #[serde(rename = "in")]
    pub input: f64,
    /// Price of cached prompt tokens.
    pub cached: f64,
    /// Price of generated tokens.
    #[serde(rename = "out")]
    pub output: f64,
}

impl Price {
    /// Returns the cost of these tokens; the number of prompt tokens includes cached ones.
    pub fn of(&self, tokens_in: u64, cached: u64, out: u64) -> f64 {
        let computed = tokens_in.saturating_sub(cached) as f64;
        (computed * self.input + cached as f64 * self.cached + out as f64 * self.output) / MILLION
    }

    /// Whether all prices are valid amounts.
    pub fn is_valid(&self) -> bool {
        [self.input, self.cached, self.output].iter().all(|amount| amount.is_finite() && *amount >= 0.0)
    }
}

impl FromStr for Price {
    type Err = String;

    /// Parses `IN/CACHED/OUT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let amounts: Option<Vec<f64>> = text.split('/').map(|amount| amount.trim().parse().ok()).collect();
        let price = match amounts.as_deref() {
            Some(&[input, cached, output]) => Some(Price { input, cached, output }),
            _ => None,
        };
        price.filter(Price::is_valid).ok_or_else(|| {
            format!("`{text}` is no price: it is IN/CACHED/OUT for a million tokens each, as 0.28/0.028/0.42")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_for_a_million() {
        let price: Price = "2/0.5/8".parse().unwrap();
        // 600 000 computed, 400 000 cached, 100 000 generated.
        let cost = price.of(1_000_000, 400_000, 100_000);
        assert!((cost - (1.2 + 0.2 + 0.8)).abs() < 1e-12, "{cost}");
        for text in ["1/2", "a/b/c", "1/-1/1", "1/NaN/1", ""] {
            assert!(text.parse::<Price>().unwrap_err().contains("IN/CACHED/OUT"), "{text}");
        }
    }
}
