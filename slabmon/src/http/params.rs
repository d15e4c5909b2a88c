//! Query strings, read strictly: an unknown key, a value out of bounds or a key given twice is refused by name.

use std::str::FromStr;

use super::{accept, error::ApiError};
use crate::{
    model::query::{Grouping, MAX_LIMIT, SortBy, TopQuery, UnknownWord, compile_pattern},
    report::Format,
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
