//! Numbers for people.

use std::time::Duration;

/// What stands for a number that is not known.
pub const UNKNOWN: &str = "-";

const IEC: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `512 B`, `455.0 MiB`.
pub fn bytes(count: u64) -> String {
    if count < 1024 { format!("{count} B") } else { scaled(count as f64) }
}

/// Signed: `+1.5 KiB`, `-3 B`, `0 B`.
pub fn signed_bytes(count: f64) -> String {
    let magnitude = count.abs();
    if magnitude < 0.5 {
        return "0 B".to_owned();
    }
    let sign = if count < 0.0 { '-' } else { '+' };
    format!("{sign}{}", fractional_bytes(magnitude))
}

/// `12 B`, `1.5 KiB`.
pub fn fractional_bytes(count: f64) -> String {
    if count.round() < 1024.0 { format!("{count:.0} B") } else { scaled(count) }
}

fn scaled(count: f64) -> String {
    let mut value = count / 1024.0;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.0 of the smaller unit.
    while value >= 1023.95 && unit + 1 < IEC.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", IEC[unit])
}

/// Events a second: a digit after the point while there are few of them.
pub fn rate(per_second: f64) -> String {
    if per_second == 0.0 {
        "0".to_owned()
    } else if per_second > 0.0 && per_second < 0.05 {
        "<0.1".to_owned()
    } else if per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// `0.4 s`, `75 s`.
pub fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 9.95 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// Applies `render`, or says [`UNKNOWN`].
pub fn known<T>(value: Option<T>, render: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), render)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_iec_units_and_one_digit() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (477_134_848, "455.0 MiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn growth_carries_its_sign() {
        assert_eq!(signed_bytes(0.0), "0 B");
        assert_eq!(signed_bytes(-0.2), "0 B");
        assert_eq!(signed_bytes(1536.0), "+1.5 KiB");
        assert_eq!(signed_bytes(-1023.9), "-1.0 KiB");
        assert_eq!(signed_bytes(-12.0), "-12 B");
    }

    #[test]
    fn small_rates_keep_a_digit() {
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(0.01), "<0.1");
        assert_eq!(rate(0.25), "0.2");
        assert_eq!(rate(9.96), "10");
        assert_eq!(rate(1_234_567.4), "1234567");
    }

    #[test]
    fn an_unknown_is_a_dash_and_not_a_zero() {
        assert_eq!(known(None, bytes), "-");
        assert_eq!(known(Some(0), bytes), "0 B");
    }
}
