//! Formats times.

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Formats seconds since 1970 and nanoseconds as RFC 3339, in UTC.
/// Computes the date by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn rfc3339(seconds: u64, nanoseconds: u32) -> String {
    let (days, rest) = (seconds / DAY + 719_468, seconds % DAY);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let fraction = if nanoseconds == 0 { String::new() } else { format!(".{nanoseconds:09}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates() {
        // From `date -u -d @SECONDS`.
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400, 0), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_735_689_599, 5), "2024-12-31T23:59:59.000000005Z");
        assert_eq!(rfc3339(4_107_542_400, 0), "2100-03-01T00:00:00Z");
    }
}
