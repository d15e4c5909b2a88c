//! Which exposition format a scraper wants, from its `Accept` header.

/// `Content-Type` of [`Format::Text`]. Prometheus 3 refuses a scrape whose Content-Type is not exactly right.
pub const CONTENT_TYPE_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// `Content-Type` of [`Format::OpenMetrics`].
pub const CONTENT_TYPE_OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An exposition format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4: what everyone reads, and what is served unless something else is asked for.
    #[default]
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The exact `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => CONTENT_TYPE_TEXT,
            Self::OpenMetrics => CONTENT_TYPE_OPENMETRICS,
        }
    }

    /// Type, subtype and version, lower case.
    fn media_type(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Text => ("text", "plain", "0.0.4"),
            Self::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }
}

/// The format to serve for this `Accept` header: the one with the larger q-value, by the most specific media range that
/// covers it (RFC 9110, 12.5.1). In doubt, and when nothing fits, [`Format::Text`]: an answer in the oldest format
/// serves a scraper better than an error.
pub fn negotiate(accept: Option<&str>) -> Format {
    let ranges: Vec<MediaRange> = accept.unwrap_or_default().split(',').filter_map(MediaRange::parse).collect();
    if quality_of(Format::OpenMetrics, &ranges) > quality_of(Format::Text, &ranges) {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

/// One element of an `Accept` header.
struct MediaRange<'a> {
    main: &'a str,
    sub: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> MediaRange<'a> {
    /// `None` for what is no media range; other elements of the header still count.
    fn parse(element: &'a str) -> Option<Self> {
        let mut parts = element.split(';').map(str::trim);
        let (main, sub) = parts.next()?.split_once('/')?;
        let mut range = Self { main, sub, version: None, quality: 1.0 };
        for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if key.trim().eq_ignore_ascii_case("version") {
                range.version = Some(value);
            } else if key.trim().eq_ignore_ascii_case("q") {
                range.quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?;
            }
        }
        Some(range)
    }

    /// How specific this range is about `format`, larger is more; `None` if it does not cover it.
    fn specificity(&self, format: Format) -> Option<u8> {
        let (main, sub, version) = format.media_type();
        if self.main == "*" && self.sub == "*" {
            return Some(0);
        }
        if !self.main.eq_ignore_ascii_case(main) {
            return None;
        }
        if self.sub == "*" {
            return Some(1);
        }
        if !self.sub.eq_ignore_ascii_case(sub) {
            return None;
        }
        match self.version {
            None => Some(2),
            Some(wanted) if wanted == version => Some(3),
            Some(_) => None,
        }
    }
}

fn quality_of(format: Format, ranges: &[MediaRange]) -> f32 {
    ranges
        .iter()
        .filter_map(|range| range.specificity(format).map(|specificity| (specificity, range.quality)))
        .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map_or(0.0, |(_, quality)| quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_2_42_gets_openmetrics() {
        let accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(negotiate(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn prometheus_3_gets_openmetrics() {
        let accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                      application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                      text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(negotiate(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn prometheus_3_with_native_histograms_gets_openmetrics_since_there_is_no_protobuf() {
        let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                      application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                      text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(negotiate(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn prometheus_told_to_scrape_text_gets_text() {
        let accept = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.2";
        assert_eq!(negotiate(Some(accept)), Format::Text);
    }

    #[test]
    fn who_asks_for_nothing_in_particular_gets_text() {
        for accept in [None, Some(""), Some("*/*"), Some("*/*;q=0.8"), Some("text/*"), Some("text/plain")] {
            assert_eq!(negotiate(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn a_browser_gets_text() {
        let accept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        assert_eq!(negotiate(Some(accept)), Format::Text);
    }

    #[test]
    fn garbage_gets_text() {
        for accept in [
            "garbage",
            ",,;;,",
            "/",
            ";q=1",
            "application/openmetrics-text;q=",
            "application/openmetrics-text;q=NaN",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=inf",
            "application/json",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;version=2.0.0",
            "text/plain;version=1.0.0",
            "\u{e9}\u{0}/\u{e9}",
        ] {
            assert_eq!(negotiate(Some(accept)), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn a_broken_element_does_not_hide_the_others() {
        assert_eq!(negotiate(Some("x;q=?,application/openmetrics-text;version=1.0.0")), Format::OpenMetrics);
    }

    #[test]
    fn the_larger_q_wins_and_a_tie_goes_to_text() {
        let both = |openmetrics: &str, text: &str| {
            negotiate(Some(&format!("application/openmetrics-text;q={openmetrics}, text/plain;q={text}")))
        };
        assert_eq!(both("0.9", "0.8"), Format::OpenMetrics);
        assert_eq!(both("0.8", "0.9"), Format::Text);
        assert_eq!(both("0.5", "0.5"), Format::Text);
        assert_eq!(both("1", "0"), Format::OpenMetrics);
        assert_eq!(both("0", "0"), Format::Text);
        assert_eq!(both("0.001", "0.000"), Format::OpenMetrics);
    }

    #[test]
    fn the_most_specific_range_decides() {
        assert_eq!(negotiate(Some("*/*, application/openmetrics-text;q=0.1")), Format::Text);
        assert_eq!(negotiate(Some("*/*;q=0.1, application/openmetrics-text")), Format::OpenMetrics);
        assert_eq!(negotiate(Some("application/*, text/*;q=0.5")), Format::OpenMetrics);
        assert_eq!(
            negotiate(Some(
                "application/openmetrics-text;version=1.0.0;q=0.1, application/openmetrics-text, text/*;q=0.5"
            )),
            Format::Text
        );
    }

    #[test]
    fn case_spaces_and_quotes_do_not_matter() {
        let accept = " Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.9 , text/plain;q=0.5";
        assert_eq!(negotiate(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn content_types_are_exact() {
        assert_eq!(Format::Text.content_type(), prometheus_client::encoding::prometheus_text::CONTENT_TYPE);
        assert_eq!(Format::OpenMetrics.content_type(), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    }
}
