//! Caches as CSV (RFC 4180): exact names and numbers, an unknown is an empty field.
//!
//! Nothing is altered for the sake of spreadsheets: a name that begins with `=` stays as it is.

use ::csv::{Terminator, WriterBuilder};

use super::cache::kind_name;
use crate::model::{
    query::{Row, is_reclaimable},
    snapshot::CacheView,
};

/// The header line. Lists (`members`, `aliases`, `flags`) are joined by `;`.
pub const COLUMNS: [&str; 34] = [
    "cache",
    "class_bytes",
    "class_kind",
    "pseudo",
    "memory_bytes",
    "growth_bytes_per_second",
    "active_objects",
    "objects",
    "object_size_bytes",
    "objects_per_slab",
    "pages_per_slab",
    "slabs",
    "slabinfo_rows",
    "allocations",
    "frees",
    "requested_bytes",
    "allocated_bytes",
    "freed_bytes",
    "failures",
    "allocations_per_second",
    "frees_per_second",
    "requested_bytes_per_second",
    "allocated_bytes_per_second",
    "freed_bytes_per_second",
    "attribute_object_size_bytes",
    "attribute_slab_size_bytes",
    "attribute_align_bytes",
    "attribute_order",
    "attribute_objects_per_slab",
    "reclaimable",
    "flags",
    "aliases",
    "members",
    "matched_alias",
];

/// Renders rows under the header line; lines end in `\n`.
pub fn rows(rows: &[Row<'_>]) -> Result<String, ::csv::Error> {
    let mut writer = WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for row in rows {
        writer.write_record(record(row))?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    // Only UTF-8 went in.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn field<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn record(row: &Row<'_>) -> [String; COLUMNS.len()] {
    let view: &CacheView = &row.view;
    let slab = view.slab;
    let counts = view.traced.map(|traced| traced.counts);
    let rates = view.traced.and_then(|traced| traced.rates);
    let attributes = view.attributes.as_ref();
    // A class that sums several kinds has no kind.
    let kind = view.class.filter(|_| row.members.is_none()).map(|class| kind_name(class.kind));
    [
        view.name.to_string(),
        field(view.class.map(|class| class.bytes)),
        field(kind),
        view.pseudo.to_string(),
        field(slab.map(|slab| slab.memory_bytes)),
        field(slab.and_then(|slab| slab.growth_bytes_per_second)),
        field(slab.map(|slab| slab.active_objects)),
        field(slab.map(|slab| slab.objects)),
        field(slab.and_then(|slab| slab.object_size_bytes)),
        field(slab.and_then(|slab| slab.objects_per_slab)),
        field(slab.and_then(|slab| slab.pages_per_slab)),
        field(slab.map(|slab| slab.slabs)),
        field(slab.map(|slab| slab.rows)),
        field(counts.map(|counts| counts.allocations)),
        field(counts.map(|counts| counts.frees)),
        field(counts.map(|counts| counts.requested_bytes)),
        field(counts.map(|counts| counts.allocated_bytes)),
        field(counts.map(|counts| counts.freed_bytes)),
        field(counts.map(|counts| counts.failures)),
        field(rates.map(|rates| rates.allocations_per_second)),
        field(rates.map(|rates| rates.frees_per_second)),
        field(rates.map(|rates| rates.requested_bytes_per_second)),
        field(rates.map(|rates| rates.allocated_bytes_per_second)),
        field(rates.map(|rates| rates.freed_bytes_per_second)),
        field(attributes.and_then(|it| it.object_size_bytes)),
        field(attributes.and_then(|it| it.slab_size_bytes)),
        field(attributes.and_then(|it| it.align_bytes)),
        field(attributes.and_then(|it| it.order)),
        field(attributes.and_then(|it| it.objects_per_slab)),
        field(is_reclaimable(view)),
        field(attributes.map(|it| it.flags.join(";"))),
        field(attributes.map(|it| it.aliases.iter().map(|alias| &**alias).collect::<Vec<_>>().join(";"))),
        field(
            row.members
                .as_ref()
                .map(|members| members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(";")),
        ),
        field(row.matched_alias.as_ref()),
    ]
}
