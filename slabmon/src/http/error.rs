//! Refusals: what was wrong, where, and what would be right, in the format that the client reads.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::dto::{ErrorBody, ErrorDto, to_json};
use crate::report::{Format, table::safe};

/// A request that is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    parameter: Option<String>,
    allowed: Vec<String>,
    near: Vec<String>,
    retry_after: bool,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), parameter: None, allowed: vec![], near: vec![], retry_after: false }
    }

    /// 400: a query parameter that is wrong.
    pub fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { parameter: Some(name.into()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// 404 for a path that is no endpoint.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no such page; `/` lists the pages")
    }

    /// 404 for a name that no cache has.
    pub fn unknown_name(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
    }

    /// 503, with `Retry-After`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Adds the values that would be right.
    pub fn with_allowed<S: Into<String>>(mut self, allowed: impl IntoIterator<Item = S>) -> Self {
        self.allowed = allowed.into_iter().map(Into::into).collect();
        self
    }

    /// Adds names that are like the one asked for.
    pub fn with_near<S: Into<String>>(mut self, near: impl IntoIterator<Item = S>) -> Self {
        self.near = near.into_iter().map(Into::into).collect();
        self
    }

    /// The response: JSON where JSON was asked, else text.
    pub fn into_response(self, format: Format) -> Response {
        let (content_type, body) = match format {
            Format::Json => ("application/json", self.json()),
            Format::Text | Format::Csv | Format::Markdown => ("text/plain; charset=utf-8", self.text()),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn json(&self) -> String {
        to_json(&ErrorDto {
            error: ErrorBody {
                status: self.status.as_u16(),
                message: &self.message,
                parameter: self.parameter.as_deref(),
                allowed: (!self.allowed.is_empty()).then_some(&self.allowed),
                near: (!self.near.is_empty()).then_some(&self.near),
            },
        })
    }

    fn text(&self) -> String {
        let mut out = match &self.parameter {
            Some(parameter) => format!("`{}`: {}\n", safe(parameter), safe(&self.message)),
            None => format!("{}\n", safe(&self.message)),
        };
        let list = |names: &[String]| names.iter().map(|name| safe(name)).collect::<Vec<_>>().join(", ");
        if !self.allowed.is_empty() {
            out.push_str(&format!("allowed: {}\n", list(&self.allowed)));
        }
        if !self.near.is_empty() {
            out.push_str(&format!("near: {}\n", list(&self.near)));
        }
        out
    }
}
