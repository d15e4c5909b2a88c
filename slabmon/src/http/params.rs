//! Query strings, read strictly: an unknown key, a value out of bounds or a key given twice is refused by name.

use std::{ops::RangeInclusive, str::FromStr};

use super::{accept, error::ApiError};
use crate::{
    model::{
        query::{Grouping, MAX_LIMIT, SortBy, TopQuery, UnknownWord, compile_pattern},
        what_if::Wish,
    },
    report::{
        Format,
        sections::{MAX_OBJECT_BYTES, MAX_ORDER, ReportOptions, parse_price},
    },
};

/// A decoded query string.
#[derive(Debug)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Decodes `query`; invalid UTF-8 is replaced.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The format by `format=`, else by the `Accept` header. Never fails, so that refusals have a format too.
    pub fn format_or_default(&self, accept: Option<&str>, offers: &[Format]) -> Format {
        self.get("format")
            .and_then(|word| word.parse().ok())
            .filter(|format| offers.contains(format))
            .unwrap_or_else(|| accept::negotiate(accept, offers))
    }

    /// Refuses keys that are not in `allowed`, keys given twice, and a `format` that is not offered.
    pub fn check(&self, allowed: &[&str], offers: &[Format]) -> Result<(), ApiError> {
        for (index, (key, _)) in self.0.iter().enumerate() {
            if !allowed.contains(&key.as_str()) {
                let unknown = ApiError::parameter(key, "unknown parameter");
                return Err(unknown.with_allowed(allowed.iter().copied()));
            }
            if self.0.iter().take(index).any(|(earlier, _)| earlier == key) {
                return Err(ApiError::parameter(key, "given twice"));
            }
        }
        let offered = self.get("format").is_none_or(|word| offers.iter().any(|format| format.as_str() == word));
        if !offered {
            let given = self.get("format").unwrap_or_default();
            return Err(ApiError::parameter("format", format!("unknown value `{given}`"))
                .with_allowed(offers.iter().map(|format| format.as_str())));
        }
        Ok(())
    }

    fn word<T: FromStr<Err = UnknownWord>>(&self, key: &str) -> Result<Option<T>, ApiError> {
        self.get(key)
            .map(|word| {
                word.parse().map_err(|error: UnknownWord| {
                    ApiError::parameter(key, format!("unknown value `{}`", error.given))
                        .with_allowed(error.allowed.iter().copied())
                })
            })
            .transpose()
    }

    /// `by=`, `limit=`, `filter=`, `group=`; what is not given comes from `defaults`.
    pub fn top_query(&self, defaults: TopQuery) -> Result<TopQuery, ApiError> {
        let filter = match self.get("filter") {
            None | Some("") => defaults.filter,
            Some(pattern) => {
                Some(compile_pattern(pattern).map_err(|error| ApiError::parameter("filter", error.to_string()))?)
            }
        };
        Ok(TopQuery {
            by: self.word::<SortBy>("by")?.unwrap_or(defaults.by),
            limit: self.limit()?.or(defaults.limit),
            filter,
            grouping: self.grouping()?,
        })
    }

    /// `section=`, `limit=` and the rest of a report's parameters.
    pub fn report_options(&self) -> Result<ReportOptions, ApiError> {
        let sections = match self.get("section") {
            None | Some("") => Vec::new(),
            Some(names) => names
                .split(',')
                .map(|name| {
                    name.parse().map_err(|error: UnknownWord| {
                        ApiError::parameter("section", format!("unknown value `{}`", error.given))
                            .with_allowed(error.allowed.iter().copied())
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let cache = self.get("cache").map(str::to_owned);
        let wish = Wish { size_bytes: self.whole_number("size", 1..=MAX_OBJECT_BYTES)?, order: self.order()? };
        if wish != Wish::default() && cache.is_none() {
            return Err(ApiError::parameter("cache", "`size` and `order` are of a cache: name it"));
        }
        Ok(ReportOptions {
            sections,
            limit: self.limit()?,
            debug_bytes_per_object: self.whole_number("debug_bytes_per_object", 0..=MAX_OBJECT_BYTES)?,
            price_per_gib: self.price()?,
            cache,
            wish,
        })
    }

    fn whole_number(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        number.filter(|number| range.contains(number)).map(Some).ok_or_else(|| {
            ApiError::parameter(key, format!("`{text}` is no whole number in range")).with_allowed([format!(
                "{}..={}",
                range.start(),
                range.end()
            )])
        })
    }

    fn order(&self) -> Result<Option<u32>, ApiError> {
        let order = self.whole_number("order", 0..=u64::from(MAX_ORDER))?;
        Ok(order.and_then(|order| u32::try_from(order).ok()))
    }

    fn price(&self) -> Result<Option<f64>, ApiError> {
        let Some(text) = self.get("price_per_gib") else { return Ok(None) };
        parse_price(text).map(Some).map_err(|problem| ApiError::parameter("price_per_gib", problem))
    }

    /// `group=class`.
    pub fn grouping(&self) -> Result<Grouping, ApiError> {
        Ok(self.word::<Grouping>("group")?.unwrap_or_default())
    }

    fn limit(&self) -> Result<Option<usize>, ApiError> {
        let Some(text) = self.get("limit") else { return Ok(None) };
        let refused = |problem: &str| {
            ApiError::parameter("limit", format!("`{text}` is {problem}")).with_allowed([format!("1..={MAX_LIMIT}")])
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused("not a whole number"));
        }
        match text.parse::<usize>() {
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(Some(limit)),
            _ => Err(refused("out of range")),
        }
    }
}
