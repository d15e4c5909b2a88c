//! `slabmon report` and `slabmon diff` on public slab data with known answers: the library and the built binary must give
//! the same, and that must be what somebody who knew the answer would say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod saved;

use std::{fs, time::Duration};

use proptest::prelude::*;
use serde_json::Value;
use slabmon::{
    http,
    model::{
        query::{SortBy, TopQuery},
        verdict::findings,
        waste::{Part, cache_waste, total_waste},
    },
    report::{
        BUILD, Context, Format,
        sections::{ReportOptions, Section},
    },
};

use saved::{Saved, cache, file_of, fixture, options, printed, refused, slabinfo_file, slabinfo_of_slabtop};

const RANK_2007: &str = "seed_2007_rank.slabinfo";
const WASTE_2007: &str = "seed_2007_waste.slabinfo";
const KMALLOC_64_2010: &str = "01_slub21_kmalloc64_7M_2010.slabinfo";
const DEBUGGED: &str = "02_slub21_parisc64_6.10.3_debug_dupname.slabinfo";
const VERSION_2_0: &str = "03_slab20_i686_2.6.9_size-N_DMA.slabinfo";
const WRAPPED: &str = "03b_slab20_mail_wrapped.slabinfo";
const STATISTICS_2_0: &str = "04b_slab20_statistics_cpustat_rejoined.slabinfo";
const STATISTICS_2_1: &str = "05_slab21_statistics_9col_embedded.slabinfo";
const ONE_NAME_PER_CARD: &str = "08_dup_mlx5_fs_5.14_RECONSTRUCTED.slabinfo";
const RED_ZONES: &str = "09_rpi4_6.6.60_redzone_kmalloc-1k_is_3072.slabinfo";
const DENTRIES: &str = "12_dentry_row.slabinfo";
const ODD_NAMES: &str = "14_names_with_spaces_quotes_utf8_SYNTHETIC_COUNTS.slabinfo";

/// Those with rows of `/proc/slabinfo` that can be read.
const SLABINFO_FILES: [&str; 11] = [
    RANK_2007,
    WASTE_2007,
    KMALLOC_64_2010,
    DEBUGGED,
    VERSION_2_0,
    STATISTICS_2_0,
    STATISTICS_2_1,
    ONE_NAME_PER_CARD,
    RED_ZONES,
    DENTRIES,
    ODD_NAMES,
];

#[test]
fn the_2007_ranking_comes_out_in_its_order_with_its_figures() {
    let expected = [
        ("ext3_inode_cache", 26_353_600),
        ("buffer_head", 20_945_920),
        ("radix_tree_node", 7_340_544),
        ("dentry_cache", 5_315_696),
        ("selinux_inode_security", 3_999_168),
        ("avtab_node", 3_855_312),
        ("size-32", 2_793_392),
        ("inode_cache", 1_448_928),
        ("size-64", 1_039_104),
        ("size-2048", 745_920),
    ];
    let report = Saved::fixture(RANK_2007).section(Section::Rank);
    let caches = report["caches"].as_array().unwrap();
    let ranked: Vec<_> =
        caches.iter().map(|it| (it["name"].as_str().unwrap(), it["space_bytes"].as_u64().unwrap())).collect();
    assert_eq!(ranked, expected);

    let csv = Saved::fixture(RANK_2007).rendered(&options(Section::Rank), Format::Csv);
    let figures: Vec<&str> = csv.lines().filter(|line| line.contains(",space_bytes,")).collect();
    let as_csv = expected.map(|(name, space)| format!("rank,{name},space_bytes,{space}"));
    assert_eq!(figures, as_csv);
    let text = Saved::fixture(RANK_2007).rendered(&options(Section::Rank), Format::Text);
    let names: Vec<&str> = text.lines().skip(2).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, expected.map(|(name, _)| name));
}

#[test]
fn the_2007_waste_table_comes_out_exactly() {
    let expected = [
        ("ext3_inode_cache", 2800, 1296, 6_457_968),
        ("inode_cache", 3096, 1000, 736_000),
        ("dentry_cache", 3808, 288, 673_632),
        ("buffer_head", 3840, 256, 512_000),
        ("avtab_node", 3696, 400, 417_600),
        ("size-32", 3752, 344, 257_656),
        ("size-2048", 6216, 1976, 245_024),
        ("selinux_inode_security", 3840, 256, 168_448),
        ("proc_inode_cache", 3192, 904, 122_944),
        ("radix_tree_node", 4032, 64, 121_472),
        ("sighand_cache", 6384, 1808, 56_048),
        ("task_struct", 3776, 320, 50_240),
    ];
    let saved = Saved::fixture(WASTE_2007);
    let report = saved.section(Section::Waste);
    assert_eq!(report["caches"].as_array().unwrap().len(), expected.len());
    for (name, used, empty, waste) in expected {
        let cache = cache(&report, name);
        let figures = ["used_per_slab_bytes", "empty_per_slab_bytes", "slab_waste_bytes"].map(|it| &cache[it]);
        assert_eq!(figures, [used, empty, waste], "{name}");
        // Without free objects, the tails are all of the waste of the waterfall.
        assert_eq!(cache["waterfall"]["slab_tail_bytes"], waste, "{name}");
    }
    let text = saved.rendered(&options(Section::Waste), Format::Text);
    let mut rows = text.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>());
    for (name, used, empty, waste) in expected {
        let numbers = [waste, used, empty].map(|number: u64| number.to_string());
        assert_eq!(
            rows.next().unwrap()[..4],
            [name, &numbers[0], &numbers[1], &numbers[2]],
            "by waste, as in the post"
        );
    }
    let total: u64 = expected.iter().map(|(_, _, _, waste)| waste).sum();
    assert_eq!(saved.section(Section::Waterfall)["waterfall"]["slab_tail_bytes"], total);
}

#[test]
fn the_2007_what_if_is_forty_bytes_for_a_third() {
    let saved = Saved::fixture(WASTE_2007);
    let report = saved.section(Section::WhatIf);
    let first = &report["worth_shrinking"][0];
    assert_eq!(first["cache"], "ext3_inode_cache");
    let expected = [
        ("objects_per_slab", 2),
        ("objects_per_slab_then", 3),
        ("limit_bytes", 1365),
        ("size_then_bytes", 1360),
        ("shave_bytes", 40),
        ("held_bytes", 20_410_368),
        ("held_then_bytes", 13_606_912),
        ("returned_bytes", 6_803_456),
    ];
    for (field, value) in expected {
        assert_eq!(first[field], value, "{field}");
    }
    let text = saved.text();
    let line = text.lines().skip_while(|line| !line.starts_with("MOST WORTH SHRINKING")).nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["ext3_inode_cache", "6.5", "MiB"]);
    assert_eq!(words[7..11], ["1400", "40", "1360", "3"]);
}

#[test]
fn a_size_and_an_order_of_the_user_s_choice_are_worked_out() {
    let saved = Saved::fixture(WASTE_2007);
    let wish = |size: Option<u64>, order: Option<u32>| {
        let mut options = ReportOptions { cache: Some("ext3_inode_cache".into()), ..ReportOptions::default() };
        (options.wish.size_bytes, options.wish.order) = (size, order);
        saved.json(&options)["wish"].take()
    };
    let smaller = wish(Some(1360), None);
    assert_eq!(
        (&smaller["wished"]["objects_per_slab"], &smaller["wished"]["held_bytes"]),
        (&3.into(), &13_606_912.into())
    );
    let tails: Vec<_> =
        smaller["orders"].as_array().unwrap().iter().map(|fit| fit["tail_bytes"].as_u64().unwrap()).collect();
    assert_eq!(tails, [16, 32, 64, 128]);
    let order = wish(None, Some(3));
    assert_eq!((&order["wished"]["objects_per_slab"], &order["wished"]["tail_bytes"]), (&23.into(), &568.into()));
    assert_eq!(order["what_if"]["best_order"]["order"], 3);
    let unknown =
        printed(&["report", "--slabinfo", fixture(WASTE_2007).to_str().unwrap(), "--cache", "nothing", "--size", "8"]);
    assert!(unknown.contains("there is no such cache"), "{unknown}");
    refused(&["report", "--size", "1360"], 64, "--cache");
    refused(&["report", "--cache", "dentry", "--size", "0"], 64, "0 is not in");
    refused(&["report", "--cache", "dentry", "--order", "11"], 64, "11 is not in");
}

#[test]
fn the_estimate_of_debugging_is_24_bytes_an_object() {
    let saved = Saved::fixture(RANK_2007);
    let with = |bytes| ReportOptions { debug_bytes_per_object: Some(bytes), ..options(Section::Debug) };
    let report = saved.json(&with(24));
    // 49882 active objects of size-32, 56 bytes each.
    let small = &cache(&report, "size-32")["debug_estimate"];
    assert_eq!((&small["space_bytes"], &small["overhead_bytes"]), (&2_793_392.into(), &1_197_168.into()));
    let caches = report["caches"].as_array().unwrap();
    for field in ["space_bytes", "overhead_bytes"] {
        let sum: u64 = caches.iter().map(|it| it["debug_estimate"][field].as_u64().unwrap()).sum();
        assert_eq!(report["debug_estimate"][field], sum, "{field}");
    }
    let share = report["debug_estimate"]["share"].as_f64().unwrap();
    assert!((0.12..0.13).contains(&share), "{share}");
    let half = saved.json(&with(12))["debug_estimate"]["overhead_bytes"].as_u64().unwrap();
    assert_eq!(Some(2 * half), report["debug_estimate"]["overhead_bytes"].as_u64());
    assert!(saved.rendered(&with(24), Format::Text).contains("all caches: 8.7 MiB of 70.4 MiB (12%)"));
}

#[test]
fn seven_million_kmalloc_64_of_2010_are_the_story() {
    let saved = Saved::fixture(KMALLOC_64_2010).meminfo(fixture("01_meminfo.txt"));
    let report = saved.section(Section::Whole);
    let whole = &report["whole"];
    assert_eq!(whole["caches_bytes"], 692_300 * 1024);
    assert_eq!(whole["slab_bytes"], 692_296 * 1024);
    assert_eq!(whole["gap_bytes"], -4096);
    let text = saved.text();
    let table = text.lines().skip_while(|line| !line.starts_with("CACHES THAT HOLD MOST")).skip(1).take(3);
    let top: Vec<Vec<&str>> = table.map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        top,
        [["kmalloc-64", "455.0", "MiB"], ["buffer_head", "140.7", "MiB"], ["radix_tree_node", "37.5", "MiB"]]
    );
    let evidence = saved.assert_verdict("kmalloc-64", "one_cache_holds_most");
    assert_eq!(evidence, "it holds 455.0 MiB of 676.1 MiB (67.3%) in 7030122 objects");
    assert!(saved.verdicts().iter().all(|(_, verdict)| verdict != "counter_drift"), "4 KiB are none");
}

#[test]
fn two_caches_of_one_name_are_summed_and_debugging_is_named() {
    let saved = Saved::fixture(DEBUGGED);
    let report = saved.section(Section::Waterfall);
    let waterfall = &cache(&report, "file_lock_cache")["waterfall"];
    assert_eq!((&waterfall["held_bytes"], &waterfall["unknown_bytes"]), (&8192.into(), &8192.into()));
    assert_eq!(waterfall["free_objects_bytes"], Value::Null, "the sizes differ, so it is not known, and not 0");
    let of = |name: &str| {
        let snapshot = saved.snapshot();
        let slab = snapshot.caches.iter().find(|cache| &*cache.name == name).unwrap().slab.unwrap();
        let debug = cache(&report, name)["waterfall"]["debug_and_alignment_bytes"].as_u64().unwrap();
        (slab.object_size_bytes.unwrap(), debug / slab.active_objects)
    };
    assert_eq!(of("kmalloc-64"), (256, 192), "class 64, slot 256");
    assert_eq!(of("kmalloc-8k"), (24_576, 24_576 - 8192));
    let evidence = saved.assert_verdict("", "debug_padding");
    assert_eq!(evidence, "debugging and alignment take 2.6 MiB of 10.1 MiB held (25%)");
}

#[test]
fn version_2_0_with_its_odd_names_is_accounted_for() {
    let saved = Saved::fixture(VERSION_2_0).meminfo(fixture("03_meminfo.txt"));
    let report = saved.section(Section::Waterfall);
    assert_eq!(report["caches"].as_array().unwrap().len(), 121);
    assert_eq!(report["waterfall"]["held_bytes"], 16_292 * 1024);
    let whole = saved.section(Section::Whole);
    assert_eq!(whole["whole"]["gap_bytes"], (16_276 - 16_292) * 1024);
    assert_eq!(cache(&report, "size-64(DMA)")["waterfall"]["debug_and_alignment_bytes"], 0);
    assert_eq!(cache(&report, "biovec-(256)")["anomalies"], Value::Array(Vec::new()));
    assert_eq!(saved.verdicts(), [(String::new(), "too_little_data".to_owned())]);
}

#[test]
fn a_wrapped_file_is_refused_with_its_name_and_line() {
    let path = fixture(WRAPPED);
    let path = path.to_str().unwrap();
    refused(&["report", "--slabinfo", path], 1, &format!("{path}:3: "));
    refused(&["diff", path, path], 1, path);
    refused(&["report", "--slabinfo", "/nowhere/slabinfo"], 1, "/nowhere/slabinfo");
    refused(&["report", "--meminfo", path], 1, path);
}

#[test]
fn objects_parked_per_cpu_and_statistics_make_no_leak() {
    let parked = Saved::fixture(STATISTICS_2_0);
    assert!(parked.snapshot().caches.iter().any(|it| it.slab.is_some_and(|slab| slab.active_objects == 128)));
    assert_eq!(parked.verdicts(), [(String::new(), "too_little_data".to_owned())]);
    let statistics = Saved::fixture(STATISTICS_2_1);
    let report = statistics.section(Section::Waterfall);
    assert_eq!(report["caches"].as_array().unwrap().len(), 16);
    assert_eq!(report["waterfall"]["held_bytes"], 11_156 * 1024);
    assert!(statistics.verdicts().iter().all(|(_, verdict)| !verdict.starts_with("growing")));
}

#[test]
fn one_name_per_network_card_is_one_sum() {
    let report = Saved::fixture(ONE_NAME_PER_CARD).section(Section::Waterfall);
    assert_eq!(cache(&report, "mlx5_fs_ftes")["waterfall"]["held_bytes"], 320 * 1024);
    let csv = Saved::fixture(ONE_NAME_PER_CARD).rendered(&options(Section::Rank), Format::Csv);
    assert_eq!(csv.matches("rank,mlx5_fs_ftes,active_objects,440\n").count(), 1, "{csv}");
    assert_eq!(csv.matches("rank,mlx5_fs_fgs,active_objects,84\n").count(), 1, "{csv}");
}

#[test]
fn red_zones_triple_a_kilobyte_and_parked_slabs_are_held() {
    let saved = Saved::fixture(RED_ZONES);
    let report = saved.section(Section::Waterfall);
    let kilobyte = &cache(&report, "kmalloc-1k")["waterfall"];
    assert_eq!(kilobyte["held_bytes"], 2144 * 1024);
    assert_eq!(kilobyte["debug_and_alignment_bytes"], 661 * 2048);
    let parked = &cache(&report, "skbuff_small_head")["waterfall"];
    assert_eq!((&parked["held_bytes"], &parked["unknown_bytes"]), (&65_536.into(), &0.into()));
    assert_eq!(parked["free_objects_bytes"], 76 * 832);
    saved.assert_verdict("", "debug_padding");
}

#[test]
fn a_dentry_explosion_is_negative_dentries_and_no_leak() {
    let saved = Saved::fixture(DENTRIES).dentry_state("12_dentry-state.txt");
    let evidence = saved.assert_verdict("dentry", "negative_dentries");
    assert!(evidence.contains("2318380 of 2368980 dentries (97.9%)") && evidence.contains("440.7 MiB"), "{evidence}");
    assert_eq!(saved.section(Section::Waterfall)["waterfall"]["held_bytes"], 451_300 * 1024);
    let text = saved.text();
    assert!(text.contains("dentry: negative dentries, reclaimable") && text.contains("no leak"), "{text}");
    // Without dentry-state it is not known, and not said.
    assert_eq!(Saved::fixture(DENTRIES).verdicts(), [(String::new(), "too_little_data".to_owned())]);
}

#[test]
fn awkward_names_survive_every_format() {
    let mut bytes = fs::read(fixture(ODD_NAMES)).unwrap();
    bytes.extend_from_slice(b"bad\xffname\x1b[2J|<b> 1 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let saved = Saved::slabinfo(file.path());
    let names: Vec<String> = saved.snapshot().caches.iter().map(|cache| cache.name.to_string()).collect();
    assert!(names.iter().any(|name| name.contains('"')) && names.iter().any(|name| name.contains('\u{fffd}')));
    let report = saved.section(Section::Waterfall);
    assert!(names.iter().all(|name| cache(&report, name).is_object()));
    assert_eq!(cache(&report, "ipc ports")["waterfall"]["free_objects_bytes"], 48 * 168);
    let all = ReportOptions { limit: Some(1000), ..options(Section::Rank) };
    let csv = saved.rendered(&all, Format::Csv);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let in_csv: std::collections::BTreeSet<String> = reader.records().map(|row| row.unwrap()[1].to_owned()).collect();
    assert_eq!(in_csv, names.iter().cloned().collect());
    let markdown = saved.rendered(&all, Format::Markdown);
    for row in markdown.lines().filter(|line| line.starts_with("| ")) {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
    }
    let text = saved.rendered(&all, Format::Text);
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()));
}

#[test]
fn growth_after_boot_that_slows_down_is_settling() {
    let series = "15_leak_series_rocm_meminfo.tsv";
    let evidence = Saved::totals(series).assert_verdict("", "settling");
    assert!(evidence.starts_with("81.9 MiB to 101.8 MiB in 2 h"), "{evidence}");
    assert!(Saved::totals(series).text().contains("slab as a whole: settling"));
    // The same series, not watched for long enough.
    let begin = file_of("1 181700 97832 83868\n10 209032 118676 90356\n20 228584 132664 95920\n");
    let mut saved = Saved::default();
    saved.files.totals = Some(begin.path().to_owned());
    assert_eq!(saved.verdicts(), [(String::new(), "too_little_data".to_owned())]);
    let broken = file_of("1 2 3 4\n# fine\n5 6 7\n");
    refused(&["report", "--totals", broken.path().to_str().unwrap()], 1, "line 3");
}

#[test]
fn a_series_that_climbs_without_end_is_growing() {
    let line = |minute: u64| format!("{minute} {0} 100000 {0}\n", 500_000 + minute * 4000);
    let series = file_of(&(0..=60).map(line).collect::<String>());
    let mut saved = Saved::default();
    saved.files.totals = Some(series.path().to_owned());
    assert_eq!(saved.verdicts(), [(String::new(), "growing".to_owned())]);
}

#[test]
fn five_kmalloc_sizes_of_one_count_are_one_path_that_keeps_them() {
    let file = slabinfo_of_slabtop("15b_leak_rocm.slabtop", &[("buffer_head", 104)]);
    let evidence = Saved::slabinfo(file.path()).assert_verdict("", "equal_counts");
    for size in ["kmalloc-96", "kmalloc-192", "kmalloc-256", "kmalloc-512", "kmalloc-1024"] {
        assert!(evidence.contains(size), "{evidence}");
    }
    assert!(!evidence.contains("buffer_head") && evidence.contains("1069281 objects"), "{evidence}");
}

#[test]
fn hundreds_of_millions_of_objects_stay_exact() {
    let sizes = [("ebitmap_node", 64), ("task_struct", 7680), ("cred_jar", 192), ("dentry", 192), ("filp", 256)];
    let file = slabinfo_of_slabtop("16_coreos_ebitmap_node_734M.slabtop", &sizes);
    let saved = Saved::slabinfo(file.path());
    let report = saved.section(Section::Waterfall);
    let node = cache(&report, "ebitmap_node");
    assert_eq!(node["space_bytes"], 734_506_368_u64 * 64);
    assert_eq!(node["waterfall"]["held_bytes"], 45_906_648_u64 * 1024);
    assert_eq!(node["waterfall"]["slab_tail_bytes"], 0);
    // 96.9 % of the 47376581.93 KiB that slabtop's head has for all caches; a row for those that it does not list.
    let listed: u64 = saved.snapshot().memory.caches_bytes.unwrap() / 4096;
    let rest = 47_376_582 / 4 - listed;
    let row = format!("others {rest} {rest} 4096 1 1 : tunables 0 0 0 : slabdata {rest} {rest} 0\n");
    fs::write(file.path(), fs::read_to_string(file.path()).unwrap() + &row).unwrap();
    let evidence = saved.assert_verdict("ebitmap_node", "one_cache_holds_most");
    assert_eq!(evidence, "it holds 43.8 GiB of 45.2 GiB (96.9%) in 734506368 objects");
}

#[test]
fn names_of_random_and_reclaimable_buckets_are_of_their_class() {
    let sizes = [("dentry", 192), ("trace_event_file", 96)];
    let file = slabinfo_of_slabtop("27_kmalloc_rnd_rcl.slabtop", &sizes);
    let report = Saved::slabinfo(file.path()).section(Section::Waterfall);
    assert_eq!(cache(&report, "dentry")["waterfall"]["held_bytes"], 451_300 * 1024);
    // The class is the size without debugging, so nothing of these slots is padding.
    for name in ["kmalloc-rcl-96", "kmalloc-rnd-14-192"] {
        assert_eq!(cache(&report, name)["waterfall"]["debug_and_alignment_bytes"], 0, "{name}");
    }
}

#[test]
fn half_empty_slabs_are_fragmented() {
    // The whole of slabtop's head, in KiB: 3255397 held, 1681083 live.
    let file = slabinfo_file(&[("all", [1_681_083, 3_255_397, 1024, 4, 1, 813_850])]);
    let saved = Saved::slabinfo(file.path());
    let evidence = saved.assert_verdict("", "fragmented");
    assert_eq!(saved.section(Section::Waterfall)["waterfall"]["free_objects_bytes"], 1_574_314 * 1024);
    assert_eq!(evidence, "1.5 GiB of 3.1 GiB held are free objects inside slabs (48%), 1.6 GiB are not");
    let table = slabinfo_of_slabtop("28_fragmentation_centos7_docker_memory.slabtop", &[("dentry", 192)]);
    Saved::slabinfo(table.path()).assert_verdict("", "fragmented");
}

#[test]
fn a_leak_of_605_million_objects_fits_and_is_not_dated_back() {
    const OBJECTS: u64 = 605_000_000;
    let slabs = OBJECTS.div_ceil(64);
    let file = slabinfo_file(&[("kmalloc-64", [OBJECTS, slabs * 64, 64, 64, 1, slabs])]);
    let kib = 385 * (1 << 20) / 10; // 38.5 GiB
    let meminfo = file_of(&format!("MemTotal: 65000000 kB\nSlab: {kib} kB\nSUnreclaim: {kib} kB\n"));
    let saved = Saved::slabinfo(file.path()).meminfo(meminfo.path());
    let report = saved.section(Section::Whole);
    assert!(report["whole"]["caches_bytes"].as_u64() < report["whole"]["unreclaimable_bytes"].as_u64());
    let evidence = saved.assert_verdict("kmalloc-64", "one_cache_holds_most");
    assert_eq!(evidence, "it holds 36.1 GiB of 36.1 GiB (100.0%) in 605000000 objects");
    let text = saved.text();
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains("rate does not date it back"), "{text}");
}

#[test]
fn the_parts_of_every_cache_of_every_fixture_add_up() {
    for name in SLABINFO_FILES {
        let report = Saved::fixture(name).section(Section::Waterfall);
        let caches = report["caches"].as_array().unwrap();
        let waterfalls = caches.iter().map(|cache| &cache["waterfall"]).chain([&report["waterfall"]]);
        for waterfall in waterfalls {
            let parts = waterfall.as_object().unwrap().iter().filter(|(part, _)| *part != "held_bytes");
            let sum: u64 = parts.filter_map(|(_, bytes)| bytes.as_u64()).sum();
            assert_eq!(waterfall["held_bytes"], sum, "{name}");
        }
        let held = |waterfall: &Value| waterfall["held_bytes"].as_u64().unwrap();
        let sum: u64 = caches.iter().map(|cache| held(&cache["waterfall"])).sum();
        assert_eq!(held(&report["waterfall"]), sum, "{name}");
        assert_eq!(report["memory"]["caches_bytes"], sum, "{name}");
    }
}

#[test]
fn the_overview_of_every_fixture_fits_one_screen() {
    for name in SLABINFO_FILES {
        let text = Saved::fixture(name).text();
        assert!(text.lines().count() <= 45, "{name}: {}\n{text}", text.lines().count());
        for line in text.lines() {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= 100, "{name}: {line}");
        }
        assert!(text.contains("\nVERDICT\n"), "{name}");
    }
}

/// A copy of `/sys/kernel/slab` with one cache: object, slot and alignment in bytes, and switches.
fn sysfs_with(name: &str, numbers: [u64; 3], switches: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join(name);
    fs::create_dir(&cache).unwrap();
    for (file, number) in ["object_size", "slab_size", "align"].iter().zip(numbers) {
        fs::write(cache.join(file), format!("{number}\n")).unwrap();
    }
    for switch in ["red_zone", "poison", "store_user", "reclaim_account"] {
        fs::write(cache.join(switch), if switches.contains(&switch) { "1\n" } else { "0\n" }).unwrap();
    }
    directory
}

#[test]
fn sysfs_splits_debugging_into_its_parts_and_leaves_no_unknown() {
    let file = slabinfo_file(&[("thing", [1000, 1040, 224, 18, 1, 58])]);
    let sysfs = sysfs_with("thing", [192, 224, 8], &["red_zone", "poison"]);
    let saved = Saved::slabinfo(file.path()).sysfs(sysfs.path());
    let report = saved.section(Section::Debug);
    let thing = cache(&report, "thing");
    let parts = &thing["debug_per_object"];
    assert_eq!((&parts["red_zone_bytes"], &parts["poison_bytes"]), (&24.into(), &8.into()));
    assert_eq!((&parts["tracking_bytes"], &parts["alignment_bytes"]), (&0.into(), &0.into()));
    let waterfall = &thing["waterfall"];
    assert_eq!(
        (&waterfall["requested_bytes"], &waterfall["debug_and_alignment_bytes"]),
        (&192_000.into(), &32_000.into())
    );
    assert_eq!(waterfall["unknown_bytes"], 0);
    refused(&["report", "--sysfs", "/sys/kernel/slab"], 64, "--slabinfo");
}

#[test]
fn a_price_is_put_on_the_pages_and_a_wrong_one_is_refused() {
    let output = printed(&["report", "--meminfo", fixture("01_meminfo.txt").to_str().unwrap(), "--format", "json"]);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["struct_page"]["pages"], 33_084_008 / 4, "MemTotal in pages");
    assert_eq!(report["struct_page"]["pages_source"], "MemTotal");
    assert_eq!(report["struct_page"]["returned_per_8_bytes_less_bytes"], 33_084_008 / 4 * 8);
    assert_eq!(report["struct_page"]["memmap_bytes"], Value::Null, "the size of struct page is not in these files");
    for price in ["-1", "much", "inf", "NaN"] {
        refused(&["report", &format!("--price-per-gib={price}")], 64, "give a number of your currency");
    }
}

#[test]
fn a_wrong_word_is_refused_with_those_that_there_are() {
    refused(&["report", "--section", "everything"], 64, "waterfall");
    refused(&["report", "--format", "yaml"], 64, "markdown");
    refused(&["report", "--limit", "0"], 64, "1 to 10000");
    refused(&["report", "--page-size", "5000", "--slabinfo", "x"], 64, "power of two");
}

#[test]
fn pages_of_another_size_are_counted_with_it() {
    let path = fixture(DENTRIES);
    let report = printed(&["report", "--slabinfo", path.to_str().unwrap(), "--page-size", "65536", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["memory"]["caches_bytes"], 112_825_u64 * 65_536);
}

/// A patch of 2007: 40 bytes off the inode.
fn patched() -> tempfile::NamedTempFile {
    let text = fs::read_to_string(fixture(WASTE_2007)).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.starts_with("ext3_inode_cache") {
            true => "ext3_inode_cache 9966 9966 1360 3 1 : tunables 0 0 0 : slabdata 3322 3322 0".to_owned(),
            false => line.to_owned(),
        })
        .collect();
    file_of(&(lines.join("\n") + "\n"))
}

fn saved_answer(files: &Saved, query: &TopQuery) -> tempfile::NamedTempFile {
    let context = Context { build: BUILD, age: Duration::ZERO };
    file_of(&http::render_top(&files.snapshot(), query, Format::Json, &context).unwrap())
}

#[test]
fn a_patch_s_before_and_after_is_told_from_files_and_from_saved_answers() {
    let (before, after) = (fixture(WASTE_2007), patched());
    let all = TopQuery { by: SortBy::Name, ..TopQuery::default() };
    let answers = [saved_answer(&Saved::fixture(WASTE_2007), &all), saved_answer(&Saved::slabinfo(after.path()), &all)];
    let [before_path, after_path] = [before.to_str().unwrap(), after.path().to_str().unwrap()];
    let [before_json, after_json] = [0, 1].map(|side: usize| answers[side].path().to_str().unwrap());
    for (before, after) in [(before_path, after_path), (before_json, after_json), (before_path, after_json)] {
        let diff: Value = serde_json::from_str(&printed(&["diff", before, after, "--format", "json"])).unwrap();
        assert_eq!(diff["changed"], 1);
        let change = &diff["changes"][0];
        assert_eq!((&change["cache"], &change["change_bytes"]), (&"ext3_inode_cache".into(), &(-6_803_456).into()));
        assert_eq!((&change["size_change_bytes"], &change["active_objects_change"]), (&(-40).into(), &0.into()));
        assert_eq!(
            (&change["before"]["held_bytes"], &change["after"]["held_bytes"]),
            (&20_410_368.into(), &13_606_912.into())
        );
        assert_eq!(diff["before_bytes"].as_u64().unwrap() - diff["after_bytes"].as_u64().unwrap(), 6_803_456);
    }
    let text = printed(&["diff", before_path, after_path]);
    assert!(text.contains("all caches: 58.6 MiB before, 52.1 MiB after, -6.5 MiB"), "{text}");
    assert!(text.contains("ext3_inode_cache") && text.contains("-40"), "{text}");
    let csv = printed(&["diff", before_path, after_path, "--format", "csv"]);
    assert!(csv.contains("diff,ext3_inode_cache,change_bytes,-6803456\n"), "{csv}");
    let markdown = printed(&["diff", before_path, after_path, "--format", "markdown"]);
    assert!(markdown.contains("| ext3\\_inode\\_cache | -6.5 MiB |"), "{markdown}");
    assert!(printed(&["diff", before_path, before_path]).contains("nothing changed"));
}

#[test]
fn a_saved_answer_that_lacks_caches_is_refused() {
    let whole = Saved::fixture(KMALLOC_64_2010);
    let cut = saved_answer(&whole, &TopQuery { limit: Some(5), ..TopQuery::default() });
    let path = cut.path().to_str().unwrap();
    refused(&["diff", path, path], 1, "does not have all caches");
    let no_answer = file_of("{\"caches\": 1}");
    refused(&["diff", no_answer.path().to_str().unwrap(), path], 1, "not an answer of /caches?format=json");
}

#[test]
fn ten_thousand_rows_are_all_accounted_for() {
    const ROWS: u64 = 10_000;
    let names: Vec<String> = (0..ROWS).map(|number| format!("cache-{number:05}")).collect();
    let rows: Vec<(&str, [u64; 6])> =
        names.iter().zip(1..).map(|(name, slabs)| (&**name, [slabs * 20, slabs * 21, 192, 21, 1, slabs])).collect();
    let file = slabinfo_file(&rows);
    let saved = Saved::slabinfo(file.path());
    let all = ReportOptions { limit: Some(10_000), ..options(Section::Waterfall) };
    let csv = saved.rendered(&all, Format::Csv);
    assert_eq!(csv.matches(",free_objects_bytes,").count() as u64, ROWS);
    assert!(csv.contains("waterfall,cache-09999,free_objects_bytes,1920000\n"), "192 bytes of each of 10000 slabs");
    let slabs = ROWS * (ROWS + 1) / 2;
    assert!(csv.contains(&format!("waterfall,held,bytes,{}\n", slabs * 4096)));
    assert!(csv.contains(&format!("waterfall,free objects,bytes,{}\n", slabs * 192)));
    let report = saved.json(&all);
    assert_eq!(report["caches"].as_array().unwrap().len() as u64, ROWS);
    let text = saved.text();
    assert!(text.lines().count() <= 45 && text.contains("cache-09999"), "{text}");
}

/// Any number that a row can hold; half of them such as kernels print.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5000u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_row_is_read_its_parts_are_within_what_is_held_and_sum_to_it(
        rows in prop::collection::vec(prop::array::uniform6(number()), 1..8),
    ) {
        let names: Vec<String> = (0..rows.len()).map(|index| ["dentry", "kmalloc-64", "a b"][index % 3].to_owned() + &"x".repeat(index / 3)).collect();
        let rows: Vec<(&str, [u64; 6])> = names.iter().map(|name| &**name).zip(rows).collect();
        let file = slabinfo_file(&rows);
        let saved = Saved::slabinfo(file.path());
        let snapshot = saved.snapshot();
        prop_assert_eq!(snapshot.caches.len(), rows.len());
        for (name, [active, objects, _, per_slab, _, slabs]) in &rows {
            let cache = snapshot.caches.iter().find(|cache| &*cache.name == *name).unwrap();
            let waste = cache_waste(cache).unwrap();
            let exact: u128 = Part::ALL.iter().filter_map(|part| waste.waterfall.part_bytes(*part)).map(u128::from).sum();
            prop_assert_eq!(exact, u128::from(cache.slab.unwrap().memory_bytes));
            let is_possible = active <= objects && u128::from(*objects) <= u128::from(*per_slab) * u128::from(*slabs);
            prop_assert!(is_possible || !waste.anomalies.is_empty(), "{:?}", waste);
            for part in Part::ALL {
                prop_assert!(waste.waterfall.share(part).is_none_or(|share| (0.0..=1.0).contains(&share)));
            }
        }
        prop_assert!(total_waste(&snapshot).share(Part::Free).is_none_or(|share| (0.0..=1.0).contains(&share)));
        prop_assert!(!findings(&snapshot).is_empty());
        let context = Context { build: BUILD, age: Duration::ZERO };
        let csv = http::render_report(&snapshot, &options(Section::Waterfall), Format::Csv, &context).unwrap();
        let is_negative = |line: &str| line.rsplit(',').next().is_some_and(|value| value.starts_with('-'));
        prop_assert!(!csv.lines().any(is_negative), "{}", csv);
        for format in [Format::Text, Format::Json, Format::Markdown] {
            let overview = http::render_report(&snapshot, &ReportOptions::default(), format, &context);
            prop_assert!(overview.is_ok());
        }
    }
}
