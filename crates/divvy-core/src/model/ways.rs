//! Several ways to serve a task, in order of preference: `h100:2,l4:4` is two H100 or, if not, four L4.

use std::fmt;
use std::str::FromStr;

use super::ask::{Alternative, Ask, DeviceClass, DeviceText, DrawAsk, NotDevices};
use super::gang::Group;
use super::job::JobSpec;

/// The most ways that can be written for one task. Each is tried whenever the job is, and nobody means that many on purpose.
pub const MOST_WAYS: usize = 16;

/// What `-g` takes: one way ([`DeviceText`]), or several, each count followed by a comma, the preferred way first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceWays(pub Vec<DeviceText>);

impl FromStr for DeviceWays {
    type Err = NotDevices;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = parts(text.trim());
        let whole = |error| match error {
            NotDevices::Part { part, .. } if parts.len() > 1 => {
                NotDevices::Part { text: text.chars().take(60).collect(), part }
            }
            error => error,
        };
        let read: Result<Vec<DeviceText>, NotDevices> = parts.iter().map(|part| part.parse()).collect();
        let read = read.map_err(whole)?;
        unlike(&read)?;
        Ok(Self(read))
    }
}

/// A comma after a count ends a way; any other comma separates models of which any will do.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut first) = (Vec::new(), 0);
    for (at, _) in text.match_indices(',') {
        let last = text[first..at].rsplit([':', ',']).next().unwrap_or_default().trim();
        if !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) {
            parts.push(&text[first..at]);
            first = at + 1;
        }
    }
    parts.push(&text[first..]);
    parts
}

/// Refuses two ways that the same devices could serve: the text would not say which of them is meant.
pub fn unlike(ways: &[DeviceText]) -> Result<(), NotDevices> {
    if ways.len() > MOST_WAYS {
        return Err(NotDevices::TooManyWays(ways.len()));
    }
    for (index, way) in ways.iter().enumerate() {
        if let Some(other) = ways[..index].iter().find(|other| other.class.overlaps(&way.class)) {
            return Err(NotDevices::SameDevices(other.to_string(), way.to_string()));
        }
    }
    Ok(())
}

impl DeviceClass {
    /// Whether a device could belong to both classes, as far as models and sizes say.
    pub fn overlaps(&self, other: &Self) -> bool {
        let any = self.models.is_empty() || other.models.is_empty();
        let least = self.least_gb.max(other.least_gb);
        let most = [self.most_gb, other.most_gb].into_iter().flatten().min();
        (any || self.models.iter().any(|model| other.models.contains(model)))
            && most.is_none_or(|most| least.is_none_or(|least| least <= most))
    }
}

/// As `-g` takes it: `4`, `h100:2`.
impl fmt::Display for DeviceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class == DeviceClass::default() {
            true => write!(f, "{}", self.count),
            false => write!(f, "{}:{}", self.class, self.count),
        }
    }
}

impl Ask {
    /// Whether its ways take different numbers of devices: then what it holds is known only once it has a place.
    pub fn has_counts(&self) -> bool {
        let mut milli = self.alternatives.iter().map(Alternative::milli);
        let first = milli.next();
        milli.any(|other| Some(other) != first)
    }

    /// What is wrong with its ways, if anything is.
    pub fn wrong_ways(&self) -> Option<&'static str> {
        let asks = || self.alternatives.iter().filter_map(|it| it.devices.as_ref());
        let parts = |draw: &DrawAsk| !matches!(draw, DrawAsk::Whole);
        if self.alternatives.is_empty() {
            Some("a role needs at least one alternative")
        } else if asks().any(|ask| ask.count == 0) {
            Some("an alternative with devices needs at least one")
        } else if asks().any(|ask| parts(&ask.draw)) && asks().any(|ask| !parts(&ask.draw)) {
            Some("alternatives take whole devices or parts of them, not now these and now those")
        } else {
            None
        }
    }
}

impl JobSpec {
    /// Whether what it holds is known only once it has a place, since ways of a role take different numbers of devices.
    pub fn has_counts(&self) -> bool {
        has_counts(&self.gang)
    }

    /// Thousandths of devices that the job asks for at least, whichever alternatives it gets.
    pub fn least_milli(&self) -> i64 {
        milli(&self.gang, |each| each.min())
    }

    /// Thousandths of devices that the job holds at most with its minimum of tasks. It counts as this when waiting jobs are compared with
    /// running ones: a job that counted for less than it then holds would get a place, lose it for what it holds, and get it again.
    pub fn most_milli(&self) -> i64 {
        milli(&self.gang, |each| each.max())
    }
}

/// What the roles of a group that must start together ask for, with one way of each role.
fn milli(group: &Group, choose: fn(&mut dyn Iterator<Item = i64>) -> Option<i64>) -> i64 {
    match group {
        Group::Role(role) => {
            let mut each = role.ask.alternatives.iter().map(Alternative::milli);
            i64::from(role.minimum) * choose(&mut each).unwrap_or(0)
        }
        Group::Branch(branch) => branch.required().map(|group| milli(group, choose)).sum(),
    }
}

fn has_counts(group: &Group) -> bool {
    match group {
        Group::Role(role) => role.ask.has_counts(),
        Group::Branch(branch) => branch.groups.iter().any(has_counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<String> {
        text.parse::<DeviceWays>().unwrap().0.iter().map(ToString::to_string).collect()
    }

    fn refused(text: &str) -> String {
        text.parse::<DeviceWays>().unwrap_err().to_string()
    }

    #[test]
    fn a_comma_behind_a_count_ends_a_way_and_one_between_models_does_not() {
        assert_eq!(read("h100:2,l4:4"), ["h100:2", "l4:4"]);
        assert_eq!(read("a100,h100:2, l4,t4:24GB:4,b200"), ["a100,h100:2", "l4,t4:24GB:4", "b200:1"]);
        assert_eq!(read("a100:80GB:1,a100:40GB:2"), ["a100:80GB:1", "a100:40GB:2"]);
        assert_eq!((read("2"), read("a100,h100")), (vec!["2".to_owned()], vec!["a100,h100:1".to_owned()]));
    }

    #[test]
    fn ways_that_the_same_devices_could_serve_are_refused_with_both_of_them() {
        for (text, ways) in [
            ("h100:2,4", ["\"h100:2\"", "\"4\""]),
            ("h100:2,l4:4,h100:1", ["\"h100:2\"", "\"h100:1\""]),
            ("2,1", ["\"2\"", "\"1\""]),
            ("h100:80GB..:2,h100:80GB:1", ["\"h100:80GB..:2\"", "\"h100:80GB:1\""]),
        ] {
            assert!(ways.iter().all(|way| refused(text).contains(way)), "{}", refused(text));
        }
        let many: Vec<String> = (0..17).map(|model| format!("m{model}:1")).collect();
        assert!(refused(&many.join(",")).contains("17"));
        assert!(refused("h100:2,l4:0").starts_with('0') && refused("h100:2,l4:x").contains("\"x\""));
        assert!(refused("h100:2,").contains("h100:2,"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_of_ways_panic(text in "[a-c0-9:,. GB-]{0,20}") {
            let _ = text.parse::<DeviceWays>();
        }
    }
}
