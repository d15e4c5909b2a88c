//! How the daemon itself is doing, as text.

use super::{
    Context,
    table::{Align, render, render_pairs, safe},
    top::{ages, head},
    units::{known, seconds},
};
use crate::model::snapshot::{Feature, Snapshot};

/// Build, host, features with reason and remedy, programs with their losses, readers.
pub fn status(snapshot: &Snapshot, context: &Context) -> String {
    let build = context.build;
    let mut pairs = vec![
        (
            "slabmon".to_owned(),
            match build.revision {
                Some(revision) => format!("{} (revision {revision})", build.version),
                None => build.version.to_owned(),
            },
        ),
        ("uptime".to_owned(), seconds(snapshot.uptime + context.age)),
        ("snapshot".to_owned(), format!("number {}, {}", snapshot.sequence, ages(snapshot, context))),
    ];
    pairs.extend(snapshot.host.iter().map(|fact| (fact.name.to_owned(), safe(&fact.value))));
    pairs.push((
        "page lookup proof".to_owned(),
        known(snapshot.proof, |proof| format!("{} checks, {} mismatches", proof.checks, proof.mismatches)),
    ));
    pairs.push((
        "counter table".to_owned(),
        known(snapshot.table, |table| {
            format!("{} of {} slots used on the fullest CPU", table.used_on_fullest_cpu, table.slots_per_cpu)
        }),
    ));
    pairs.push((
        "large kmalloc events left out as duplicates".to_owned(),
        match snapshot.programs.is_empty() {
            true => super::units::UNKNOWN.to_owned(),
            false => snapshot.large_duplicates.to_string(),
        },
    ));
    format!(
        "{}\n{}\n{}\n{}\n{}",
        head(snapshot, context),
        render_pairs(&pairs),
        features(&snapshot.features),
        programs(snapshot),
        collectors(snapshot)
    )
}

/// The table of features.
pub fn features(features: &[Feature]) -> String {
    let rows: Vec<Vec<String>> = features
        .iter()
        .map(|feature| {
            let state = if feature.enabled { "yes" } else { "no" };
            vec![feature.name.to_owned(), state.to_owned(), safe(&feature.reason), safe(&feature.remedy)]
        })
        .collect();
    render(&[("FEATURE", Align::Left), ("ON", Align::Left), ("WHY", Align::Left), ("WHAT TO DO", Align::Left)], &rows)
}

fn programs(snapshot: &Snapshot) -> String {
    if snapshot.programs.is_empty() {
        return "no program is attached\n".to_owned();
    }
    let rows: Vec<Vec<String>> = snapshot
        .programs
        .iter()
        .map(|program| {
            let losses = program.losses;
            vec![
                program.program.to_owned(),
                program.counted.to_string(),
                known(program.missed, |missed| missed.to_string()),
                losses.table_full.to_string(),
                losses.claim_busy.to_string(),
                losses.read_failed.to_string(),
                losses.unattributed.to_string(),
            ]
        })
        .collect();
    let header = [
        ("PROGRAM", Align::Left),
        ("COUNTED", Align::Right),
        ("MISSED", Align::Right),
        ("TABLE FULL", Align::Right),
        ("CLAIM BUSY", Align::Right),
        ("READ FAILED", Align::Right),
        ("UNATTRIBUTED", Align::Right),
    ];
    render(&header, &rows)
}

fn collectors(snapshot: &Snapshot) -> String {
    let rows: Vec<Vec<String>> = snapshot
        .collectors
        .iter()
        .map(|collector| {
            let state = if collector.success { "yes" } else { "no" };
            let milliseconds = format!("{:.1} ms", collector.duration.as_secs_f64() * 1e3);
            let error = collector.error.as_deref().map(safe).unwrap_or_default();
            vec![collector.collector.to_owned(), state.to_owned(), milliseconds, error]
        })
        .collect();
    render(&[("READER", Align::Left), ("OK", Align::Left), ("TOOK", Align::Right), ("ERROR", Align::Left)], &rows)
}
