//! What a change would give back: smaller structs, another slab order, a smaller `struct page`.

use super::{cut, name};
use crate::{
    model::{
        query::find,
        snapshot::{CacheView, Snapshot},
        struct_page::struct_page,
        what_if::{Fit, ORDERS, Shape, Wish, order_of, wished, worth_shrinking},
    },
    report::{
        document::{Block, Cell},
        sections::ReportOptions,
        units::bytes,
    },
};

/// Which structs are most worth shrinking, and what each returns.
pub(super) fn what_if_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("what_if", "STRUCTS MOST WORTH SHRINKING").columns(&[
        ("CACHE", "cache"),
        ("RETURNS", "returned_bytes"),
        ("HELD", "held_bytes"),
        ("THEN", "held_then_bytes"),
        ("SIZE", "size_bytes"),
        ("SHAVE", "shave_bytes"),
        ("TO", "size_then_bytes"),
        ("PER SLAB", "objects_per_slab_then"),
        ("ORDER", "best_order"),
        ("TAIL", "best_order_tail_bytes"),
    ]);
    let page_bytes = snapshot.evidence.page_size_bytes;
    for candidate in worth_shrinking(snapshot) {
        let one_more = candidate.one_more;
        let best = Shape::of(candidate.cache)
            .ok()
            .zip(page_bytes)
            .and_then(|(shape, page)| shape.best_order(one_more.size_bytes, page));
        block.rows.push(vec![
            name(candidate.cache),
            Cell::Bytes(Some(one_more.returned_bytes())),
            Cell::Bytes(Some(one_more.held_bytes)),
            Cell::Bytes(Some(one_more.held_then_bytes)),
            Cell::Exact(Some(one_more.size_bytes + one_more.shave_bytes)),
            Cell::Exact(Some(one_more.shave_bytes)),
            Cell::Exact(Some(one_more.size_bytes)),
            Cell::Count(Some(one_more.objects_per_slab_then)),
            Cell::Count(best.map(|fit| u64::from(fit.order))),
            Cell::Exact(best.map(|fit| fit.tail_bytes)),
        ]);
    }
    if block.rows.is_empty() {
        block
            .lines
            .push("none: no struct gets one more object into a slab by losing at most a quarter of itself".into());
    }
    cut(&mut block, limit);
    if !block.rows.is_empty() {
        block.notes.push(
            "ORDER, TAIL: the best slab order of 0 to 3 for that size, and the bytes that a slab would waste"
                .to_owned(),
        );
    }
    block
}

/// What the user's cache would hold with another size or order, beside what it holds now.
pub(super) fn wish(snapshot: &Snapshot, options: &ReportOptions) -> Option<Block> {
    let asked = options.cache.as_deref()?;
    let title = format!("WHAT IF: {asked}");
    Some(match find(snapshot, asked) {
        Some(found) => cases_block(snapshot, found.cache, options, title),
        None => Block { lines: vec!["there is no such cache".to_owned()], ..Block::new("wish", title) },
    })
}

/// A cache with the size and order of the options, in slabs of the orders 0 to 3, and with one more object a slab.
pub(super) fn cases_block(
    snapshot: &Snapshot,
    cache: &CacheView,
    options: &ReportOptions,
    title: impl Into<String>,
) -> Block {
    let mut block = Block::new("wish", title).columns(&[
        ("", "case"),
        ("SIZE", "size_bytes"),
        ("ORDER", "order"),
        ("PER SLAB", "objects_per_slab"),
        ("TAIL/SLAB", "tail_bytes"),
        ("HELD", "held_bytes"),
        ("CHANGE", "change_bytes"),
    ]);
    let Some(page_bytes) = snapshot.evidence.page_size_bytes else {
        block.lines.push("the page size is not known".to_owned());
        return block;
    };
    let shape = match Shape::of(cache) {
        Ok(shape) => shape,
        Err(reason) => {
            block.lines.push(reason.as_str().to_owned());
            return block;
        }
    };
    let mut add = |case: &str, size: u64, fit: Fit| {
        let change =
            fit.held_bytes.and_then(|held| i64::try_from(i128::from(held) - i128::from(shape.held_bytes)).ok());
        block.rows.push(vec![
            Cell::Text(case.to_owned()),
            Cell::Exact(Some(size)),
            Cell::Count(Some(u64::from(fit.order))),
            Cell::Count(Some(fit.objects_per_slab)),
            Cell::Exact(Some(fit.tail_bytes)),
            Cell::Bytes(fit.held_bytes),
            Cell::Change(change),
        ]);
    };
    let size = options.wish.size_bytes.unwrap_or(shape.size_bytes);
    if options.wish != Wish::default()
        && let Some(fit) = wished(&shape, options.wish, page_bytes)
    {
        add("as wished", size, fit);
    }
    for order in ORDERS {
        let case = format!("order {order}");
        add(&case, size, shape.fit(size, order, page_bytes));
    }
    match shape.one_more() {
        Ok(one_more) => {
            let order = order_of(shape.slab_bytes, page_bytes).unwrap_or(0);
            add("one more a slab", one_more.size_bytes, shape.fit(one_more.size_bytes, order, page_bytes));
            block.notes.push(format!("{} bytes to shave for one more a slab", one_more.shave_bytes));
        }
        Err(reason) => block.notes.push(format!("one more a slab: {}", reason.as_str())),
    }
    block.lines.push(format!(
        "now: {} bytes a slot, {} a slab, {} held",
        shape.size_bytes,
        shape.objects_per_slab,
        bytes(shape.held_bytes)
    ));
    block
}

/// What `struct page` costs.
pub(super) fn struct_page_block(snapshot: &Snapshot, options: &ReportOptions) -> Block {
    let page = struct_page(snapshot);
    let mut block = Block::new("struct_page", "STRUCT PAGE").columns(&[("FIGURE", "figure"), ("VALUE", "value")]);
    let mut add = |title: &str, cell: Cell| block.rows.push(vec![Cell::Text(title.to_owned()), cell]);
    add("size, bytes (BTF)", Cell::Exact(page.size_bytes));
    add("of it padding, bytes (BTF)", Cell::Exact(page.padding_bytes));
    let source = |title: &str, from: Option<&'static str>| match from {
        Some(from) => format!("{title} ({from})"),
        None => title.to_owned(),
    };
    add(&source("pages", page.pages.map(|(_, from)| from.as_str())), Cell::Count(page.pages.map(|(pages, _)| pages)));
    let memmap = source("memory map", page.memmap.map(|(_, from)| from.as_str()));
    add(&memmap, Cell::Bytes(page.memmap.map(|(bytes, _)| bytes)));
    add("share of RAM, percent", Cell::Number(page.share_of_ram.map(|share| share * 100.0)));
    add("describes slab pages", Cell::Bytes(page.slab_part_bytes));
    add("describes slab pages, percent of it", Cell::Number(page.slab_part_share().map(|share| share * 100.0)));
    add("returned per 8 bytes less", Cell::Bytes(page.per_8_bytes_less_bytes));
    add("reserved at boot (RAM - MemTotal)", Cell::Bytes(page.boot_reserved_bytes));
    if let Some(price) = options.price_per_gib {
        let money = page.money(price);
        add("price of the memory map", Cell::Number(money.map(|money| money.memmap)));
        add("saved per 8 bytes less", Cell::Number(money.map(|money| money.per_8_bytes_less)));
    }
    if page.size_bytes.is_none() {
        block.notes.push("size and padding need /sys/kernel/btf/vmlinux of the machine that is reported".to_owned());
    }
    block
}
