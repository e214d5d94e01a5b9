//! Sizes for people.

/// Formats a size in the largest binary unit that leaves an integer part.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return format!("{bytes} B");
    }
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        let check = |number: u64, expected: &str| assert_eq!(bytes(number), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(5 << 29, "2.5 GiB");
        check(u64::MAX, "16.0 EiB");
    }
}
