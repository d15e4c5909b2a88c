//! The report as JSON. A part that was not asked for is `null`, as is what is not known.

use serde::Serialize;

use super::{MemoryDto, SnapshotDto};
use crate::{
    model::{
        debug::{DebugEstimate, DebugParts, DebugTotals, cache_debug_parts, layout_of, total_debug},
        query::find,
        rank::{RankBy, rank},
        snapshot::{CacheView, Snapshot},
        struct_page::{StructPage, struct_page},
        verdict::{Finding, Verdict, cache_verdicts, findings},
        waste::{Waterfall, cache_waste, total_waste},
        what_if::{Fit, ORDERS, OneMore, Shape, wished, worth_shrinking},
        whole::{NOT_COVERED, Whole, whole},
    },
    report::{
        Context,
        sections::{ReportOptions, Section},
        words::words,
    },
};

/// Answer of `/report`.
#[derive(Serialize)]
pub struct ReportDto<'a> {
    /// `null` for saved files, which do not tell when they were read.
    snapshot: Option<SnapshotDto>,
    memory: MemoryDto,
    page_size_bytes: Option<u64>,
    whole: Option<WholeDto>,
    waterfall: Option<WaterfallDto>,
    /// By the space of their objects, most first; only where a section by cache is asked for.
    caches: Option<Vec<AccountDto<'a>>>,
    /// What debugging and alignment add to the live objects of all caches.
    debug: Option<DebugTotalsDto>,
    debug_estimate: Option<EstimateDto>,
    worth_shrinking: Option<Vec<CandidateDto<'a>>>,
    wish: Option<WishDto<'a>>,
    struct_page: Option<StructPageDto>,
    verdicts: Option<Vec<FindingDto>>,
}

impl<'a> ReportDto<'a> {
    /// The parts that the options name, or all but the caches.
    pub fn new(snapshot: &'a Snapshot, options: &'a ReportOptions, context: &Context) -> Self {
        let wants = |section: Section| options.sections.is_empty() || options.sections.contains(&section);
        let by_cache = options
            .sections
            .iter()
            .any(|section| matches!(section, Section::Rank | Section::Waterfall | Section::Waste | Section::Debug));
        let limit = options.limit.unwrap_or(usize::MAX);
        Self {
            snapshot: (snapshot.taken_at_unix_seconds > 0.0).then(|| SnapshotDto::new(snapshot, context)),
            memory: (&snapshot.memory).into(),
            page_size_bytes: snapshot.evidence.page_size_bytes,
            whole: wants(Section::Whole).then(|| (&whole(snapshot)).into()),
            waterfall: wants(Section::Waterfall).then(|| total_waste(snapshot).into()),
            caches: by_cache.then(|| {
                let ranked = rank(snapshot, RankBy::Space).into_iter().take(limit);
                ranked.map(|row| AccountDto::new(snapshot, row.cache, options)).collect()
            }),
            debug: wants(Section::Debug).then(|| total_debug(snapshot).into()),
            debug_estimate: options.debug_bytes_per_object.map(|per_object| {
                let of = |cache: &CacheView| estimate(cache, per_object);
                snapshot.caches.iter().filter_map(of).fold(DebugEstimate::default(), DebugEstimate::plus).into()
            }),
            worth_shrinking: wants(Section::WhatIf).then(|| {
                let candidates = worth_shrinking(snapshot).into_iter().take(limit);
                candidates
                    .map(|candidate| CandidateDto { cache: &candidate.cache.name, one_more: candidate.one_more.into() })
                    .collect()
            }),
            wish: options.cache.as_deref().map(|asked| WishDto::new(snapshot, asked, options)),
            struct_page: wants(Section::StructPage).then(|| StructPageDto::new(struct_page(snapshot), options)),
            verdicts: wants(Section::Verdict)
                .then(|| findings(snapshot).iter().take(limit).map(FindingDto::from).collect()),
        }
    }
}

fn estimate(cache: &CacheView, per_object: u64) -> Option<DebugEstimate> {
    let slab = cache.slab.as_ref()?;
    Some(DebugEstimate::new(slab.active_objects, slab.object_size_bytes?, per_object))
}

#[derive(Serialize)]
struct WholeDto {
    caches_bytes: Option<u64>,
    large_kmalloc_bytes: Option<u64>,
    slab_bytes: Option<u64>,
    reclaimable_bytes: Option<u64>,
    reclaimable_caches_bytes: Option<u64>,
    unreclaimable_bytes: Option<u64>,
    unreclaimable_caches_bytes: Option<u64>,
    gap_bytes: Option<i64>,
    gap_share: Option<f64>,
    not_covered: &'static [&'static str],
}

impl From<&Whole> for WholeDto {
    fn from(whole: &Whole) -> Self {
        Self {
            caches_bytes: whole.caches_bytes,
            large_kmalloc_bytes: whole.large_kmalloc_bytes,
            slab_bytes: whole.slab_bytes,
            reclaimable_bytes: whole.reclaimable_bytes,
            reclaimable_caches_bytes: whole.reclaimable_caches_bytes,
            unreclaimable_bytes: whole.unreclaimable_bytes,
            unreclaimable_caches_bytes: whole.unreclaimable_caches_bytes,
            gap_bytes: whole.gap_bytes,
            gap_share: whole.gap_share(),
            not_covered: NOT_COVERED,
        }
    }
}

/// Where the bytes go; the parts add up to `held_bytes`.
#[derive(Serialize)]
pub struct WaterfallDto {
    held_bytes: u64,
    requested_bytes: Option<u64>,
    rounding_bytes: Option<u64>,
    debug_and_alignment_bytes: Option<u64>,
    free_objects_bytes: Option<u64>,
    slab_tail_bytes: Option<u64>,
    unknown_bytes: u64,
}

impl From<Waterfall> for WaterfallDto {
    fn from(waterfall: Waterfall) -> Self {
        Self {
            held_bytes: waterfall.held_bytes,
            requested_bytes: waterfall.requested_bytes,
            rounding_bytes: waterfall.rounding_bytes,
            debug_and_alignment_bytes: waterfall.debug_bytes,
            free_objects_bytes: waterfall.free_bytes,
            slab_tail_bytes: waterfall.tail_bytes,
            unknown_bytes: waterfall.unknown_bytes,
        }
    }
}

/// The account of one cache.
#[derive(Serialize)]
pub struct AccountDto<'a> {
    name: &'a str,
    space_bytes: Option<u64>,
    waterfall: Option<WaterfallDto>,
    used_per_slab_bytes: Option<u64>,
    empty_per_slab_bytes: Option<u64>,
    slab_waste_bytes: Option<u64>,
    anomalies: Vec<&'static str>,
    debug_per_object: Option<DebugPartsDto>,
    debug_estimate: Option<EstimateDto>,
    what_if: WhatIfDto,
    verdicts: Vec<FindingDto>,
}

impl<'a> AccountDto<'a> {
    /// Of one cache.
    pub fn new(snapshot: &Snapshot, cache: &'a CacheView, options: &ReportOptions) -> Self {
        let slab = cache.slab.as_ref();
        let waste = cache_waste(cache);
        let parts = cache_debug_parts(cache, layout_of(snapshot));
        let per_object = options.debug_bytes_per_object;
        let verdicts = cache_verdicts(snapshot, cache);
        Self {
            name: &cache.name,
            space_bytes: slab.and_then(|slab| Some(slab.active_objects.saturating_mul(slab.object_size_bytes?))),
            waterfall: waste.as_ref().map(|waste| waste.waterfall.into()),
            used_per_slab_bytes: waste.as_ref().and_then(|waste| waste.used_per_slab_bytes),
            empty_per_slab_bytes: waste.as_ref().and_then(|waste| waste.empty_per_slab_bytes),
            slab_waste_bytes: waste.as_ref().zip(slab).and_then(|(waste, slab)| waste.slab_waste_bytes(slab.slabs)),
            anomalies: waste.iter().flat_map(|waste| &waste.anomalies).map(|anomaly| anomaly.as_str()).collect(),
            debug_per_object: parts.map(DebugPartsDto::from),
            debug_estimate: per_object.and_then(|bytes| estimate(cache, bytes)).map(EstimateDto::from),
            what_if: WhatIfDto::new(snapshot, cache),
            verdicts: verdicts.iter().map(|verdict| FindingDto::new(None, verdict)).collect(),
        }
    }
}

#[derive(Serialize)]
struct DebugPartsDto {
    red_zone_bytes: u64,
    tracking_bytes: u64,
    poison_bytes: u64,
    alignment_bytes: u64,
}

impl From<DebugParts> for DebugPartsDto {
    fn from(parts: DebugParts) -> Self {
        let DebugParts { red_zone_bytes, tracking_bytes, poison_bytes, alignment_bytes } = parts;
        Self { red_zone_bytes, tracking_bytes, poison_bytes, alignment_bytes }
    }
}

#[derive(Serialize)]
struct DebugTotalsDto {
    #[serde(flatten)]
    parts: DebugPartsDto,
    /// Of caches whose slots cannot be split.
    not_split_bytes: u64,
}

impl From<DebugTotals> for DebugTotalsDto {
    fn from(totals: DebugTotals) -> Self {
        Self { parts: totals.parts.into(), not_split_bytes: totals.not_split_bytes }
    }
}

#[derive(Serialize)]
struct EstimateDto {
    space_bytes: u64,
    overhead_bytes: u64,
    share: Option<f64>,
}

impl From<DebugEstimate> for EstimateDto {
    fn from(estimate: DebugEstimate) -> Self {
        Self { space_bytes: estimate.space_bytes, overhead_bytes: estimate.overhead_bytes, share: estimate.share() }
    }
}

#[derive(Serialize)]
struct OneMoreDto {
    objects_per_slab: u64,
    objects_per_slab_then: u64,
    limit_bytes: u64,
    size_then_bytes: u64,
    shave_bytes: u64,
    held_bytes: u64,
    held_then_bytes: u64,
    returned_bytes: u64,
}

impl From<OneMore> for OneMoreDto {
    fn from(one_more: OneMore) -> Self {
        Self {
            objects_per_slab: one_more.objects_per_slab,
            objects_per_slab_then: one_more.objects_per_slab_then,
            limit_bytes: one_more.limit_bytes,
            size_then_bytes: one_more.size_bytes,
            shave_bytes: one_more.shave_bytes,
            held_bytes: one_more.held_bytes,
            held_then_bytes: one_more.held_then_bytes,
            returned_bytes: one_more.returned_bytes(),
        }
    }
}

#[derive(Serialize)]
struct CandidateDto<'a> {
    cache: &'a str,
    #[serde(flatten)]
    one_more: OneMoreDto,
}

#[derive(Serialize)]
struct FitDto {
    order: u32,
    slab_bytes: u64,
    objects_per_slab: u64,
    tail_bytes: u64,
    held_bytes: Option<u64>,
}

impl From<Fit> for FitDto {
    fn from(fit: Fit) -> Self {
        let Fit { order, slab_bytes, objects_per_slab, tail_bytes, held_bytes } = fit;
        Self { order, slab_bytes, objects_per_slab, tail_bytes, held_bytes }
    }
}

/// What a change of a cache would give back.
#[derive(Serialize)]
pub struct WhatIfDto {
    one_more: Option<OneMoreDto>,
    /// Why there is no `one_more`.
    no_gain: Option<&'static str>,
    /// The best order of 0 to 3 for the size as it is.
    best_order: Option<FitDto>,
    /// The same for the size of `one_more`.
    best_order_then: Option<FitDto>,
}

impl WhatIfDto {
    /// Of one cache.
    pub fn new(snapshot: &Snapshot, cache: &CacheView) -> Self {
        let shape = Shape::of(cache);
        let one_more = shape.and_then(|shape| shape.one_more());
        let best = |size: u64| shape.ok()?.best_order(size, snapshot.evidence.page_size_bytes?).map(FitDto::from);
        Self {
            one_more: one_more.ok().map(OneMoreDto::from),
            no_gain: one_more.err().map(|reason| reason.as_str()),
            best_order: shape.ok().and_then(|shape| best(shape.size_bytes)),
            best_order_then: one_more.ok().and_then(|one_more| best(one_more.size_bytes)),
        }
    }
}

#[derive(Serialize)]
struct WishDto<'a> {
    asked: &'a str,
    size_bytes: Option<u64>,
    /// As wished; `null` where the cache is not known.
    wished: Option<FitDto>,
    /// The size, as wished or as it is, in slabs of the orders 0 to 3.
    orders: Vec<FitDto>,
    what_if: Option<WhatIfDto>,
}

impl<'a> WishDto<'a> {
    fn new(snapshot: &Snapshot, asked: &'a str, options: &ReportOptions) -> Self {
        let cache = find(snapshot, asked).map(|found| found.cache);
        let shape = cache.and_then(|cache| Shape::of(cache).ok());
        let known = shape.zip(snapshot.evidence.page_size_bytes);
        let size_bytes = options.wish.size_bytes.or(shape.map(|shape| shape.size_bytes));
        Self {
            asked,
            size_bytes,
            wished: known.and_then(|(shape, page)| wished(&shape, options.wish, page)).map(FitDto::from),
            orders: known
                .zip(size_bytes)
                .map(|((shape, page), size)| ORDERS.map(|order| shape.fit(size, order, page).into()).into())
                .unwrap_or_default(),
            what_if: cache.map(|cache| WhatIfDto::new(snapshot, cache)),
        }
    }
}

#[derive(Serialize)]
struct StructPageDto {
    size_bytes: Option<u64>,
    padding_bytes: Option<u64>,
    pages: Option<u64>,
    pages_source: Option<&'static str>,
    memmap_bytes: Option<u64>,
    memmap_source: Option<&'static str>,
    ram_bytes: Option<u64>,
    share_of_ram: Option<f64>,
    describes_slab_bytes: Option<u64>,
    describes_slab_share: Option<f64>,
    returned_per_8_bytes_less_bytes: Option<u64>,
    boot_reserved_bytes: Option<u64>,
    memmap_price: Option<f64>,
    saved_per_8_bytes_less_price: Option<f64>,
}

impl StructPageDto {
    fn new(page: StructPage, options: &ReportOptions) -> Self {
        let money = options.price_per_gib.and_then(|price| page.money(price));
        Self {
            size_bytes: page.size_bytes,
            padding_bytes: page.padding_bytes,
            pages: page.pages.map(|(pages, _)| pages),
            pages_source: page.pages.map(|(_, source)| source.as_str()),
            memmap_bytes: page.memmap.map(|(bytes, _)| bytes),
            memmap_source: page.memmap.map(|(_, source)| source.as_str()),
            ram_bytes: page.ram_bytes,
            share_of_ram: page.share_of_ram,
            describes_slab_bytes: page.slab_part_bytes,
            describes_slab_share: page.slab_part_share(),
            returned_per_8_bytes_less_bytes: page.per_8_bytes_less_bytes,
            boot_reserved_bytes: page.boot_reserved_bytes,
            memmap_price: money.map(|money| money.memmap),
            saved_per_8_bytes_less_price: money.map(|money| money.per_8_bytes_less),
        }
    }
}

/// A verdict in words.
#[derive(Serialize)]
pub struct FindingDto {
    /// `null` is the machine, or the cache around it.
    cache: Option<String>,
    verdict: &'static str,
    evidence: String,
    next_step: &'static str,
}

impl FindingDto {
    fn new(cache: Option<&str>, verdict: &Verdict) -> Self {
        let words = words(verdict);
        Self {
            cache: cache.map(str::to_owned),
            verdict: verdict.as_str(),
            evidence: words.evidence,
            next_step: words.next_step,
        }
    }
}

impl From<&Finding> for FindingDto {
    fn from(finding: &Finding) -> Self {
        Self::new(finding.cache.as_deref(), &finding.verdict)
    }
}
