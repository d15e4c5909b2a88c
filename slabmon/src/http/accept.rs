//! Which format a client asks for by its `Accept` header (RFC 9110 §12.5.1).

use crate::report::Format;

/// A media range of an `Accept` header.
struct Range<'h> {
    kind: &'h str,
    subtype: &'h str,
    quality: f32,
}

/// The format that `accept` likes best among `offers`, which are in the server's order of preference.
///
/// A media type's quality comes from the most specific range that covers it. Of equal qualities the one that the
/// client named first wins, then the server's order. A browser's `text/html` gets text. Where nothing fits, or nothing
/// was asked, the answer is the first offer: a table that was not asked for is of more use than an error.
pub fn negotiate(accept: Option<&str>, offers: &[Format]) -> Format {
    let ranges: Vec<Range<'_>> = accept.map(parse).unwrap_or_default();
    let mut best: Option<(f32, usize, Format)> = None;
    for offer in offers {
        let Some((quality, position)) = quality_of(*offer, &ranges) else { continue };
        let better = match best {
            None => quality > 0.0,
            Some((best_quality, best_position, _)) => {
                quality > best_quality || (quality == best_quality && position < best_position)
            }
        };
        if better {
            best = Some((quality, position, *offer));
        }
    }
    best.map(|(_, _, format)| format).or_else(|| offers.first().copied()).unwrap_or_default()
}

/// Media types that a format answers to, the proper one first.
fn media_types(format: Format) -> &'static [(&'static str, &'static str)] {
    match format {
        Format::Text => &[("text", "plain"), ("text", "html")],
        Format::Json => &[("application", "json")],
        Format::Csv => &[("text", "csv")],
        Format::Markdown => &[("text", "markdown")],
    }
}

/// Best quality over the format's media types, and the place in the header of the range that gave it.
fn quality_of(format: Format, ranges: &[Range<'_>]) -> Option<(f32, usize)> {
    let mut best: Option<(f32, usize)> = None;
    for (kind, subtype) in media_types(format) {
        let specific = |range: &Range<'_>| {
            if range.kind.eq_ignore_ascii_case(kind) && range.subtype.eq_ignore_ascii_case(subtype) {
                Some(2)
            } else if range.kind.eq_ignore_ascii_case(kind) && range.subtype == "*" {
                Some(1)
            } else if range.kind == "*" && range.subtype == "*" {
                Some(0)
            } else {
                None
            }
        };
        let chosen = ranges
            .iter()
            .enumerate()
            .filter_map(|(position, range)| specific(range).map(|rank| (rank, position, range.quality)))
            .max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        if let Some((_, position, quality)) = chosen
            && best.is_none_or(|(best_quality, _)| quality > best_quality)
        {
            best = Some((quality, position));
        }
    }
    best
}

/// Ranges that can be read; others are left out.
fn parse(header: &str) -> Vec<Range<'_>> {
    split_unquoted(header, ',').into_iter().filter_map(parse_range).collect()
}

fn parse_range(text: &str) -> Option<Range<'_>> {
    let mut parts = split_unquoted(text, ';').into_iter().map(str::trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let mut quality = 1.0;
    for parameter in parts {
        if let Some((name, value)) = parameter.split_once('=')
            && name.trim().eq_ignore_ascii_case("q")
        {
            quality = value.trim().parse::<f32>().ok().filter(|quality| (0.0..=1.0).contains(quality))?;
        }
    }
    Some(Range { kind: kind.trim(), subtype: subtype.trim(), quality })
}

/// Splits at `separator` where it is outside double quotes.
fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => {
                parts.push(&text[start..index]);
                start = index + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Format; 3] = [Format::Text, Format::Json, Format::Csv];

    #[test]
    fn the_format_follows_the_accept_header() {
        let cases = [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/plain"), Format::Text),
            (Some("application/json"), Format::Json),
            (Some("Application/JSON; charset=utf-8"), Format::Json),
            (Some("text/csv"), Format::Csv),
            (Some("text/*"), Format::Text),
            (Some("application/*"), Format::Json),
            // A browser.
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Format::Text),
            // What JavaScript clients send: the first of equals.
            (Some("application/json, text/plain, */*"), Format::Json),
            (Some("application/json;q=0.5, text/csv;q=0.9"), Format::Csv),
            (Some("text/plain;q=0.1, application/json;q=0.2"), Format::Json),
            (Some("text/plain;q=0, text/html;q=0, */*"), Format::Json),
            (Some("application/json;q=0"), Format::Text),
            (Some("*/*;q=0"), Format::Text),
            (Some("image/png"), Format::Text),
            (Some("application/json;q=7, text/csv"), Format::Csv),
            (Some(r#"text/plain;x="a,application/json;q=1";q=0.1, text/csv;q=0.2"#), Format::Csv),
            (Some("garbage;;;,/,\""), Format::Text),
        ];
        for (header, format) in cases {
            assert_eq!(negotiate(header, &ALL), format, "{header:?}");
        }
    }

    #[test]
    fn a_format_that_is_not_offered_is_not_chosen() {
        assert_eq!(negotiate(Some("text/csv, application/json;q=0.1"), &[Format::Text, Format::Json]), Format::Json);
    }
}
