//! Which caches were born between two listings of all caches.

/// Rows that a listing torn by births may repeat at one place and still be recognised.
const MAX_REPEATED_ROWS: usize = 16;

/// Indices into `new` of the caches that were born after `old` was listed, ascending.
///
/// Both listings are in the kernel's order. The kernel adds a cache at the head of `slab_caches` (`list_add` in
/// `create_cache`, mm/slab_common.c) and never reorders that list, and `/proc/slabinfo` walks it from the head. So the
/// survivors keep their order and stand behind all newborns: they are the longest suffix of `new` that is a
/// subsequence of `old`. This finds a cache that was destroyed and created again under its old name, too.
///
/// It never calls a survivor born. What no listing can show stays hidden: a re-creation that leaves the list as if
/// nothing had happened, for instance of the cache that was at the head anyway. The same goes for a newborn that only
/// repeats the row behind it: `/proc/slabinfo` is read a page at a time and a birth between two of these reads repeats
/// rows, so a repeated run of rows that follow counts as one.
pub fn births<K: Eq>(old: &[K], new: &[K]) -> Vec<usize> {
    let mut old_left = old.len();
    let mut unmatched = new.len();
    while let Some(row) = unmatched.checked_sub(1) {
        if let Some(place) = old[..old_left].iter().rposition(|name| *name == new[row]) {
            old_left = place;
            unmatched = row;
        } else if let Some(rows) = repeated_rows(new, unmatched) {
            unmatched -= rows;
        } else {
            break;
        }
    }
    (0..unmatched).collect()
}

/// How many rows before `at` are the same, in order, as those from `at` on; `None` if there is no such run.
fn repeated_rows<K: Eq>(rows: &[K], at: usize) -> Option<usize> {
    let longest = MAX_REPEATED_ROWS.min(at).min(rows.len() - at);
    (1..=longest).find(|&run| rows[at - run..at] == rows[at..at + run])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_unchanged_listing_has_no_births() {
        assert_eq!(births(&["c", "b", "a"], &["c", "b", "a"]), [0usize; 0]);
        assert_eq!(births::<&str>(&[], &[]), [0usize; 0]);
    }

    #[test]
    fn a_newborn_stands_at_the_head() {
        assert_eq!(births(&["b", "a"], &["d", "c", "b", "a"]), [0, 1]);
    }

    #[test]
    fn all_caches_are_born_after_an_empty_listing() {
        assert_eq!(births(&[], &["b", "a"]), [0, 1]);
    }

    #[test]
    fn a_destroyed_cache_is_no_birth() {
        assert_eq!(births(&["d", "c", "b", "a"], &["d", "b"]), [0usize; 0]);
        assert_eq!(births(&["d", "c", "b", "a"], &[]), [0usize; 0]);
    }

    #[test]
    fn a_cache_created_again_under_its_old_name_is_a_birth() {
        assert_eq!(births(&["c", "b", "a"], &["b", "c", "a"]), [0]);
        assert_eq!(births(&["c", "b", "a"], &["a", "c", "b"]), [0]);
    }

    #[test]
    fn what_stands_before_a_newborn_is_newborn_whatever_its_name() {
        // c was destroyed, x created, then c created again.
        assert_eq!(births(&["c", "b", "a"], &["c", "x", "b", "a"]), [0, 1]);
    }

    #[test]
    fn the_head_cache_created_again_cannot_be_told() {
        assert_eq!(births(&["c", "b", "a"], &["c", "b", "a"]), [0usize; 0]);
    }

    #[test]
    fn two_caches_of_one_name_survive_as_two() {
        assert_eq!(births(&["f", "g", "f", "g"], &["f", "g", "f", "g"]), [0usize; 0]);
        assert_eq!(births(&["f", "g", "f", "g"], &["n", "f", "f", "g"]), [0]);
    }

    #[test]
    fn a_listing_torn_by_a_birth_makes_no_survivor_a_newborn() {
        // Read in two pages; one cache was born between them, so the last row of the first page came again.
        assert_eq!(births(&["d", "c", "b", "a"], &["d", "c", "c", "b", "a"]), [0usize; 0]);
        // Two were born between them.
        assert_eq!(births(&["d", "c", "b", "a"], &["d", "c", "b", "c", "b", "a"]), [0usize; 0]);
        // One was born before the first page as well.
        assert_eq!(births(&["d", "c", "b", "a"], &["e", "d", "c", "c", "b", "a"]), [0]);
    }

    /// One thing that happens to the kernel's list.
    #[derive(Clone, Debug)]
    enum Event {
        Create(u8),
        Destroy(prop::sample::Index),
        /// Destroyed and at once created again under the same name.
        Recreate(prop::sample::Index),
    }

    fn any_event(names: u8) -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..names).prop_map(Event::Create),
            any::<prop::sample::Index>().prop_map(Event::Destroy),
            any::<prop::sample::Index>().prop_map(Event::Recreate),
        ]
    }

    /// A cache of the simulated list: its name, and whether it was created after the first listing.
    type Cache = (u8, bool);

    /// The list after `events`; with `unique`, a name is never created twice at a time.
    fn simulate(old: &[u8], events: &[Event], unique: bool) -> Vec<Cache> {
        let mut list: Vec<Cache> = old.iter().map(|&name| (name, false)).collect();
        for event in events {
            match event {
                Event::Create(name) => {
                    if !unique || list.iter().all(|(other, _)| other != name) {
                        list.insert(0, (*name, true));
                    }
                }
                Event::Destroy(index) if !list.is_empty() => {
                    list.remove(index.index(list.len()));
                }
                Event::Recreate(index) if !list.is_empty() => {
                    let (name, _) = list.remove(index.index(list.len()));
                    list.insert(0, (name, true));
                }
                Event::Destroy(_) | Event::Recreate(_) => {}
            }
        }
        list
    }

    fn names(list: &[Cache]) -> Vec<u8> {
        list.iter().map(|&(name, _)| name).collect()
    }

    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|name| rest.any(|other| other == name))
    }

    proptest! {
        #[test]
        fn no_survivor_is_ever_called_born(
            old in prop::collection::vec(0u8..12, 0..12),
            events in prop::collection::vec(any_event(12), 0..20),
        ) {
            let list = simulate(&old, &events, false);
            for index in births(&old, &names(&list)) {
                prop_assert!(list[index].1, "{index} of {:?} after {old:?}", names(&list));
            }
        }

        #[test]
        fn every_name_that_was_not_there_before_is_born(
            old in prop::collection::vec(0u8..12, 0..12),
            events in prop::collection::vec(any_event(24), 0..20),
        ) {
            let new = names(&simulate(&old, &events, false));
            let born: HashSet<usize> = births(&old, &new).into_iter().collect();
            for (index, name) in new.iter().enumerate() {
                prop_assert!(old.contains(name) || born.contains(&index));
            }
        }

        /// With unique names a birth is missed only where the listing looks as if there had been none.
        #[test]
        fn a_missed_birth_left_no_trace(
            old in Just((0u8..12).collect::<Vec<_>>()).prop_shuffle(),
            events in prop::collection::vec(any_event(16), 0..20),
        ) {
            let list = simulate(&old, &events, true);
            let new = names(&list);
            let born = births(&old, &new).len();
            prop_assert!(is_subsequence(&new[born..], &old));
            prop_assert!(born == 0 || !is_subsequence(&new[born - 1..], &old));
            prop_assert!(list[..born].iter().all(|&(_, is_born)| is_born));
        }

        /// A listing in two pages, with births between them.
        #[test]
        fn a_torn_listing_calls_no_survivor_born(
            old in Just((0u8..20).collect::<Vec<_>>()).prop_shuffle(),
            page in 5usize..20,
            between in 0usize..5,
        ) {
            let mut list = old.clone();
            let mut read = list[..page].to_vec();
            for name in 0..between {
                list.insert(0, 100 + u8::try_from(name).unwrap_or(u8::MAX));
            }
            read.extend_from_slice(&list[page..]);
            for index in births(&old, &read) {
                prop_assert!(!old.contains(&read[index]), "{index} of {read:?} after {old:?}");
            }
        }
    }
}
