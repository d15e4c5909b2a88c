#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;
use crate::model::samples::{PAGE_BYTES, row, snapshot};

fn shape(numbers: [u64; 6]) -> Shape {
    Shape::of(&snapshot(vec![row("cache", numbers)]).caches[0]).unwrap()
}

/// `ext3_inode_cache` of the 2007 post's waste table.
const EXT3: [u64; 6] = [9966, 9966, 1400, 2, 1, 4983];

#[test]
fn forty_bytes_off_the_ext3_inode_return_a_third() {
    let expected = OneMore {
        objects_per_slab: 2,
        objects_per_slab_then: 3,
        limit_bytes: 1365,
        size_bytes: 1360,
        shave_bytes: 40,
        held_bytes: 20_410_368,
        held_then_bytes: 13_606_912,
    };
    assert_eq!(shape(EXT3).one_more(), Ok(expected));
    assert_eq!(expected.returned_bytes(), 6_803_456);
}

#[test]
fn the_best_order_wastes_the_smallest_share_and_is_the_lowest_of_equals() {
    let shape = shape(EXT3);
    // 4096 = 2 × 1400 + 1296; 8192 = 5 × 1400 + 1192; 16384 = 11 × 1400 + 984; 32768 = 23 × 1400 + 568.
    let tails = ORDERS.map(|order| shape.fit(1400, order, PAGE_BYTES).tail_bytes);
    assert_eq!(tails, [1296, 1192, 984, 568]);
    let best = shape.best_order(1400, PAGE_BYTES).unwrap();
    assert_eq!((best.order, best.held_bytes), (3, Some(9966u64.div_ceil(23) * 32_768)));
    assert_eq!(shape.best_order(1024, PAGE_BYTES).unwrap().order, 0, "all orders waste nothing");
    assert_eq!(shape.best_order(5000, PAGE_BYTES).unwrap().order, 2, "16384 = 3 × 5000 + 1384, and 32768 twice that");
    assert_eq!(shape.best_order(40_000, PAGE_BYTES), None);
}

#[test]
fn a_wish_changes_what_it_names_and_nothing_else() {
    let shape = shape(EXT3);
    let by_size = wished(&shape, Wish { size_bytes: Some(1360), order: None }, PAGE_BYTES).unwrap();
    assert_eq!((by_size.objects_per_slab, by_size.held_bytes), (3, Some(13_606_912)));
    let by_order = wished(&shape, Wish { size_bytes: None, order: Some(1) }, PAGE_BYTES).unwrap();
    assert_eq!((by_order.objects_per_slab, by_order.slab_bytes), (5, 8192));
    let as_is = wished(&shape, Wish::default(), PAGE_BYTES).unwrap();
    assert_eq!(as_is.held_bytes, Some(20_410_368));
    let too_large = wished(&shape, Wish { size_bytes: Some(u64::MAX), order: Some(200) }, PAGE_BYTES).unwrap();
    assert_eq!(too_large.held_bytes.map(|held| held > 0), Some(true));
}

#[test]
fn a_size_of_a_32_bit_kernel_is_rounded_to_what_it_is_a_multiple_of() {
    // 7 × 580 bytes in 4096; 8 at 512.
    assert_eq!(shape([7, 7, 580, 7, 1, 1]).align_bytes, 4);
    let three = shape([9966, 9966, 1404, 2, 1, 4983]).one_more().unwrap();
    assert_eq!((three.limit_bytes, three.size_bytes), (1365, 1364));
}

#[test]
fn a_slab_whose_room_the_allocator_keeps_has_no_size_to_shave_to() {
    // buffer_head of 2007: 30 × 128 bytes in 4096, where SLAB's header takes the last 256.
    assert_eq!(shape([60_000, 60_000, 128, 30, 1, 2000]).one_more(), Err(NoGain::RoomIsTaken));
    assert_eq!(shape([4096, 4096, 1, 4096, 1, 1]).one_more(), Err(NoGain::TooSmall));
    let no_slab = snapshot(vec![row("cache", [0, 0, 64, 64, 1, 0])]);
    assert_eq!(Shape::of(&no_slab.caches[0]), Err(NoGain::Empty));
    let no_size = snapshot(vec![row("cache", [0, 0, 0, 64, 1, 1])]);
    assert_eq!(Shape::of(&no_size.caches[0]), Err(NoGain::NotKnown));
}

#[test]
fn structs_are_ranked_by_what_shrinking_them_returns_and_buckets_are_none() {
    let snapshot = snapshot(vec![
        row("ext3_inode_cache", EXT3),
        row("inode_cache", [2208, 2208, 1032, 3, 1, 736]),
        row("task_struct", [157, 157, 3776, 1, 1, 157]),
        row("kmalloc-2k", [372, 372, 2072, 3, 2, 124]),
    ]);
    let ranking = worth_shrinking(&snapshot);
    let names: Vec<_> = ranking.iter().map(|candidate| &*candidate.cache.name).collect();
    assert_eq!(names, ["ext3_inode_cache", "inode_cache"], "half of a task_struct is nobody's to take");
    let inode = ranking[1].one_more;
    assert_eq!((inode.shave_bytes, inode.returned_bytes()), (8, (736 - 552) * 4096));
}

proptest! {
    #[test]
    fn no_change_ever_holds_more_or_shaves_more_than_there_is(numbers in prop::array::uniform6(prop_oneof![0..5000u64, any::<u64>()])) {
        let snapshot = snapshot(vec![row("cache", numbers)]);
        if let Ok(shape) = Shape::of(&snapshot.caches[0]) {
            if let Ok(one_more) = shape.one_more() {
                prop_assert!(one_more.held_then_bytes <= one_more.held_bytes);
                prop_assert!(one_more.shave_bytes > 0 && one_more.shave_bytes < shape.size_bytes);
            }
            for order in [0, 3, 63, 64, u32::MAX] {
                let fit = shape.fit(numbers[0], order, PAGE_BYTES);
                prop_assert!(fit.tail_bytes <= fit.slab_bytes);
            }
        }
    }
}
