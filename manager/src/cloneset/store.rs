//! Objects of one kind by name: what the watch has told, overlaid with our own writes until the watch has passed them.
//!
//! A decision must not be made on a view that lacks what the last decision did: the pod just deleted would still count, and another one would
//! go. So the answer to a write goes straight in here, and older news of the watch about the same object are dropped. What the watch does not
//! confirm in time is asked for (see [`Store::unconfirmed`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the store needs of an object.
pub(super) trait Kept {
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    /// As a number: versions of one object are compared, which the API server permits.
    fn version(&self) -> u64;
}

/// How long the watch may take to tell of an own write before the object is asked for.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
/// Deleted objects whose deletion the watch has not told, remembered at most.
const GONE_AT_MOST: usize = 100_000;

#[derive(Debug)]
struct Entry<T> {
    object: T,
    /// Since when it holds a write of ours that the watch has not told.
    own_since: Option<Duration>,
    /// Told or written since the list under way began.
    listed: bool,
}

/// Objects of one kind in one namespace.
#[derive(Debug)]
pub(super) struct Store<T> {
    entries: BTreeMap<String, Entry<T>>,
    /// UIDs of what we deleted at once and the watch still has, and whether that was since the list under way began.
    gone: BTreeMap<String, bool>,
    /// Names of entries with a write of ours that the watch may not have told; some may have been told meanwhile.
    own: BTreeSet<String>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            gone: BTreeMap::new(),
            own: BTreeSet::new(),
        }
    }
}

impl<T: Kept> Store<T> {
    /// The object of this name.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name).map(|entry| &entry.object)
    }

    /// All objects, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.object)
    }

    /// Objects whose names begin so.
    pub(super) fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a T> {
        self.entries
            .range(prefix.to_owned()..)
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(_, entry)| &entry.object)
    }

    /// A list begins: what it does not name, and is not told or written meanwhile, is gone.
    pub(super) fn begin(&mut self) {
        for entry in self.entries.values_mut() {
            entry.listed = false;
        }
        for since in self.gone.values_mut() {
            *since = false;
        }
    }

    /// The list is complete. Answers what went.
    pub(super) fn complete(&mut self) -> Vec<T> {
        let went: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.listed)
            .map(|(name, _)| name.clone())
            .collect();
        self.gone.retain(|_, since| *since);
        went.iter()
            .filter_map(|name| self.entries.remove(name))
            .map(|entry| entry.object)
            .collect()
    }

    /// The watch tells of an object. Answers the object that it replaced, or none if the news are old.
    pub(super) fn told(&mut self, object: T) -> Told<T> {
        if self.gone.contains_key(object.uid()) {
            return Told::Old;
        }
        self.put(object, None)
    }

    /// An own write or a single read made this object at that moment.
    pub(super) fn wrote(&mut self, object: T, now: Duration) -> Told<T> {
        self.own.insert(object.name().to_owned());
        self.put(object, Some(now))
    }

    /// Forgets which writes were told. Answers whether some are left.
    pub(super) fn has_unconfirmed(&mut self) -> bool {
        let entries = &self.entries;
        self.own
            .retain(|name| entries.get(name).is_some_and(|entry| entry.own_since.is_some()));
        !self.own.is_empty()
    }

    fn put(&mut self, object: T, own_since: Option<Duration>) -> Told<T> {
        let mut entry = Entry {
            object,
            own_since,
            listed: true,
        };
        let Some(known) = self.entries.get_mut(entry.object.name()) else {
            self.entries.insert(entry.object.name().to_owned(), entry);
            return Told::New(None);
        };
        let same = known.object.uid() == entry.object.uid();
        if same && entry.object.version() < known.object.version() {
            known.listed = true;
            return Told::Old;
        }
        if same && entry.object.version() == known.object.version() {
            // The watch caught up with a write of ours, or tells the same twice.
            known.listed = true;
            known.own_since = known.own_since.and(own_since);
            return Told::Old;
        }
        std::mem::swap(known, &mut entry);
        Told::New(Some(entry.object))
    }

    /// The watch tells that an object is gone. Answers it.
    pub(super) fn deleted(&mut self, name: &str, uid: &str) -> Option<T> {
        self.gone.remove(uid);
        self.remove(name, uid)
    }

    /// A write of ours, or a single read, found that an object is gone. Answers it.
    pub(super) fn removed(&mut self, name: &str, uid: &str) -> Option<T> {
        let removed = self.remove(name, uid)?;
        if self.gone.len() < GONE_AT_MOST {
            self.gone.insert(uid.to_owned(), true);
        }
        Some(removed)
    }

    fn remove(&mut self, name: &str, uid: &str) -> Option<T> {
        if self.entries.get(name)?.object.uid() != uid {
            return None;
        }
        self.entries.remove(name).map(|entry| entry.object)
    }

    /// Names of what we wrote so long ago that the watch should have told of it.
    pub(super) fn unconfirmed(&self, now: Duration) -> Vec<String> {
        let late = |name: &String| {
            let since = self.entries.get(name)?.own_since?;
            (since + CONFIRM_WITHIN <= now).then(|| name.clone())
        };
        self.own.iter().filter_map(late).collect()
    }

    /// A single read found an object as it is here: nothing is unconfirmed about it.
    pub(super) fn confirm(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.own_since = None;
        }
    }
}

/// What came of news about an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told<T> {
    /// It is in the store now, in place of this.
    New(Option<T>),
    /// The store has the same or something newer.
    Old,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Thing(&'static str, &'static str, u64);

    impl Kept for Thing {
        fn name(&self) -> &str {
            self.0
        }
        fn uid(&self) -> &str {
            self.1
        }
        fn version(&self) -> u64 {
            self.2
        }
    }

    const AT: Duration = Duration::from_secs(10);

    #[test]
    fn an_own_write_stands_until_the_watch_has_passed_it() {
        let mut store = Store::default();
        store.told(Thing("a", "1", 5));
        store.wrote(Thing("a", "1", 9), AT);
        assert_eq!(store.told(Thing("a", "1", 7)), Told::Old);
        assert_eq!(store.get("a"), Some(&Thing("a", "1", 9)));
        assert_eq!(store.unconfirmed(AT + CONFIRM_WITHIN), ["a"]);
        assert_eq!(store.told(Thing("a", "1", 9)), Told::Old);
        assert!(store.unconfirmed(AT + CONFIRM_WITHIN).is_empty());
        assert_eq!(
            store.told(Thing("a", "1", 11)),
            Told::New(Some(Thing("a", "1", 9)))
        );
    }

    #[test]
    fn what_we_deleted_does_not_come_back_by_old_news() {
        let mut store = Store::default();
        store.told(Thing("a", "1", 5));
        assert!(store.removed("a", "1").is_some());
        assert_eq!(store.told(Thing("a", "1", 6)), Told::Old);
        assert_eq!(store.get("a"), None);
        // Another object of the same name is another object.
        assert_eq!(store.told(Thing("a", "2", 8)), Told::New(None));
        assert_eq!(store.deleted("a", "1"), None);
        assert!(store.get("a").is_some());
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_name_but_not_what_was_written_meanwhile() {
        let mut store = Store::default();
        store.told(Thing("a", "1", 5));
        store.told(Thing("b", "2", 6));
        store.begin();
        store.wrote(Thing("c", "3", 9), AT);
        store.told(Thing("b", "2", 6));
        assert_eq!(store.complete(), [Thing("a", "1", 5)]);
        assert_eq!(store.iter().count(), 2);
    }

    #[test]
    fn names_by_prefix() {
        let mut store = Store::default();
        for name in ["set-a", "set-b", "set", "sex-a"] {
            store.told(Thing(name, name, 1));
        }
        let names: Vec<&str> = store.with_prefix("set-").map(Kept::name).collect();
        assert_eq!(names, ["set-a", "set-b"]);
    }
}
