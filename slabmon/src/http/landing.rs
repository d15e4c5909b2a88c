//! The page at `/`: what this is and where to go on. No script, no style, nothing from elsewhere.

use crate::report::Build;

/// Forbids everything that the page does not use, which is all but links.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Renders the page.
pub fn page(build: Build, telemetry_path: &str) -> String {
    let links = [
        (telemetry_path, "metrics for Prometheus"),
        ("/caches/top", "the caches that hold most (by=, limit=, filter=, group=class)"),
        ("/caches/top?group=class", "the same by kmalloc size class"),
        ("/caches/top?by=growth", "the caches that grow most"),
        (
            "/report",
            "where every byte goes, what is worth shrinking, what struct page costs, and a verdict (section=, cache=)",
        ),
        ("/caches", "all caches by name; /caches/NAME is one of them"),
        ("/status", "features, reasons, losses"),
        ("/healthz", "alive"),
        ("/readyz", "ready"),
    ];
    let items: String = links
        .iter()
        .map(|(path, text)| format!("<li><a href=\"{0}\">{0}</a> {1}</li>\n", escape(path), escape(text)))
        .collect();
    let revision = build.revision.map_or_else(String::new, |revision| format!(" (revision {})", escape(revision)));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>slabmon</title></head>\n<body>\n\
         <h1>slabmon</h1>\n<p>Where the kernel's slab memory goes and who takes it. Version {}{revision}.</p>\n\
         <ul>\n{items}</ul>\n<p>Tables are text; add <code>?format=json</code> or <code>?format=csv</code>.</p>\n\
         </body>\n</html>\n",
        escape(build.version)
    )
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
