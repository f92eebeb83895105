//! Which devices of a node a task gets, by how they are joined: those that belong together, and so that the rest do, too.

use std::cmp::Reverse;

use crate::model::island::IslandLevel;
use crate::snapshot::{DeviceView, Lanes, NodeView};

/// The size of an island up to which a set is grown from every pair of its devices; in larger ones from the best pair alone.
const FEW: usize = 16;

/// Chooses this many of the fitting devices of a node, all of one island if any has enough; else from the fullest down, so
/// that as few as possible are joined. An island is what fast links join; for devices without any, a NUMA node.
pub(in crate::plan) fn devices<'a>(
    node: &NodeView,
    fitting: &[&'a DeviceView],
    count: usize,
) -> Vec<&'a DeviceView> {
    match &node.lanes {
        None => evenly(fitting, count),
        Some(lanes) => by_lanes(lanes, fitting, count),
    }
}

/// By how many lanes devices of a node are joined with each other, where it matters; else none.
pub(in crate::plan) fn lanes_among(node: &NodeView, devices: &[&DeviceView]) -> u64 {
    node.lanes.as_ref().map_or(0, |lanes| Set::of(lanes, devices, devices).inside)
}

/// Where all devices of an island are alike: from the island with the fewest fitting ones that has enough. Inside, the lowest index.
fn evenly<'a>(fitting: &[&'a DeviceView], count: usize) -> Vec<&'a DeviceView> {
    let home = |device: &DeviceView| match device.spec.links.is_empty() {
        true => (None, device.spec.numa),
        false => (Some(device.site.island(IslandLevel::Nvlink)), None),
    };
    if count <= fitting.len() && fitting.windows(2).all(|pair| home(pair[0]) == home(pair[1])) {
        return fitting[..count].to_vec();
    }
    let mut islands = islands(fitting, |one, other| home(one) == home(other));
    if let Some(island) =
        islands.iter().filter(|island| island.len() >= count).min_by_key(|island| island.len())
    {
        return island[..count].to_vec();
    }
    islands.sort_by_key(|island| Reverse(island.len()));
    islands.into_iter().flatten().take(count).collect()
}

/// Where it matters which devices: a single device is one joined to the others by the fewest lanes, so that those with most
/// stay together. Several come from the island with the fewest fitting ones that has enough, one of fast links before others;
/// of such islands the one whose best set is joined by most lanes. An island is what the links between fitting devices join.
fn by_lanes<'a>(lanes: &Lanes, fitting: &[&'a DeviceView], count: usize) -> Vec<&'a DeviceView> {
    let mut islands = islands(fitting, |one, other| {
        lanes.between(one.site.place, other.site.place) > 0
            || one.spec.links.is_empty() && other.spec.links.is_empty() && one.spec.numa == other.spec.numa
    });
    let enough = islands.iter().filter(|island| island.len() >= count);
    let sets = enough.map(|island| (island.len(), best_set(lanes, island, count)));
    let best = match count {
        0 | 1 => sets.min_by_key(|(size, set)| (set.outside, *size)),
        _ => sets.min_by_key(|(size, set)| (set.inside == 0, *size, Reverse(set.inside))),
    };
    if let Some((_, set)) = best {
        return set.devices;
    }
    islands.sort_by_key(|island| Reverse(island.len()));
    let mut chosen = Vec::new();
    for island in islands {
        let more = (count - chosen.len()).min(island.len());
        if more > 0 {
            chosen.extend(best_set(lanes, &island, more).devices);
        }
    }
    chosen
}

/// Devices by island, each in the order of their places; nearness is passed on from one device to the next.
fn islands<'a>(
    fitting: &[&'a DeviceView],
    are_near: impl Fn(&DeviceView, &DeviceView) -> bool,
) -> Vec<Vec<&'a DeviceView>> {
    let mut islands: Vec<Vec<&DeviceView>> = Vec::new();
    for device in fitting {
        let is_here = |island: &Vec<&DeviceView>| island.iter().any(|other| are_near(other, device));
        let Some(first) = islands.iter().position(is_here) else {
            islands.push(vec![device]);
            continue;
        };
        // This device may join several islands that were apart so far.
        while let Some(place) = islands[first + 1..].iter().position(is_here) {
            let joined = islands.remove(first + 1 + place);
            islands[first].extend(joined);
            islands[first].sort_by_key(|device| device.site.place);
        }
        islands[first].push(device);
    }
    islands
}

/// Some of the devices of an island.
struct Set<'a> {
    devices: Vec<&'a DeviceView>,
    /// The lanes by which they are joined with each other, pair by pair.
    inside: u64,
    /// The lanes by which they are joined with the rest of the island.
    outside: u64,
}

impl<'a> Set<'a> {
    fn of(lanes: &Lanes, devices: &[&'a DeviceView], island: &[&DeviceView]) -> Self {
        let from = |one: &DeviceView, to: &[&DeviceView]| -> u64 {
            to.iter().map(|other| lanes.between(one.site.place, other.site.place)).sum()
        };
        let twice: u64 = devices.iter().map(|one| from(one, devices)).sum();
        let all: u64 = devices.iter().map(|one| from(one, island)).sum();
        Self { devices: devices.to_vec(), inside: twice / 2, outside: all - twice }
    }
}

/// The best `count` devices of an island that has as many: those joined by most lanes; of equals those that leave the others more,
/// then the first by place. Grown from a pair, one device after the other: for two devices, and for all, there is no better set.
fn best_set<'a>(lanes: &Lanes, island: &[&'a DeviceView], count: usize) -> Set<'a> {
    if count >= island.len() {
        return Set::of(lanes, island, island);
    }
    let rank = |set: &Set| (Reverse(set.inside), set.outside);
    if count <= 1 {
        let alone = (0..island.len()).map(|at| Set::of(lanes, &island[at..at + count.min(1)], island));
        return alone.min_by_key(rank).unwrap_or_else(|| Set::of(lanes, &[], island));
    }
    let pairs = (0..island.len()).flat_map(|one| (one + 1..island.len()).map(move |other| (one, other)));
    let of_pair = |(one, other): (usize, usize)| Set::of(lanes, &[island[one], island[other]], island);
    let best = match count {
        2 => pairs.map(of_pair).min_by_key(rank),
        _ if island.len() <= FEW => pairs.map(|pair| grown(lanes, island, (pair, count))).min_by_key(rank),
        _ => {
            let best = pairs.min_by_key(|pair| rank(&of_pair(*pair)));
            best.map(|pair| grown(lanes, island, (pair, count)))
        }
    };
    best.unwrap_or_else(|| Set::of(lanes, &island[..count], island))
}

/// A pair of an island with as many more devices as needed, each the one that is joined to those before it by most lanes.
fn grown<'a>(
    lanes: &Lanes,
    island: &[&'a DeviceView],
    ((one, other), count): ((usize, usize), usize),
) -> Set<'a> {
    let mut chosen = vec![one, other];
    let between = |one: usize, other: usize| lanes.between(island[one].site.place, island[other].site.place);
    let mut gains: Vec<u64> = (0..island.len()).map(|at| between(at, one) + between(at, other)).collect();
    while chosen.len() < count {
        let left = (0..island.len()).filter(|at| !chosen.contains(at));
        let Some(next) = left.min_by_key(|at| Reverse(gains[*at])) else { break };
        chosen.push(next);
        gains.iter_mut().enumerate().for_each(|(at, gain)| *gain += between(at, next));
    }
    chosen.sort_unstable();
    let devices: Vec<&DeviceView> = chosen.into_iter().map(|at| island[at]).collect();
    Set::of(lanes, &devices, island)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::Scenario;
    use proptest::prelude::*;

    const DEVICES: usize = 6;

    /// A node whose pairs of devices are joined by so many lanes each.
    fn node(lanes: &[u32]) -> NodeView {
        let pairs = (0..DEVICES).flat_map(|one| (one + 1..DEVICES).map(move |other| (one, other)));
        let joints = pairs.zip(lanes).filter(|(_, lanes)| **lanes > 0);
        let joints: Vec<String> =
            joints.map(|((one, other), lanes)| format!("{one}+{other}:{lanes}")).collect();
        let linked = if joints.is_empty() { String::new() } else { format!("linked={}", joints.join(",")) };
        let mut scenario = Scenario::new();
        scenario.line(&format!("node n1 {DEVICES}xh100 {linked}")).unwrap();
        scenario.snapshot().capacity.nodes[0].clone()
    }

    fn island(device: &DeviceView) -> u32 {
        device.site.island(IslandLevel::Nvlink)
    }

    proptest! {
        #[test]
        fn of_two_devices_no_pair_of_their_island_is_joined_by_more_lanes(lanes in prop::collection::vec(0u32..4, 15)) {
            let node = node(&lanes);
            let all: Vec<&DeviceView> = node.devices.iter().collect();
            let pair = devices(&node, &all, 2);
            prop_assert_eq!(pair.len(), 2);
            let within: Vec<&&DeviceView> = all.iter().filter(|device| island(device) == island(pair[0])).collect();
            for (at, one) in within.iter().enumerate() {
                for other in &within[at + 1..] {
                    prop_assert!(lanes_among(&node, &[**one, **other]) <= lanes_among(&node, &pair));
                }
            }
        }

        #[test]
        fn so_many_of_one_island_are_found_where_one_has_as_many(
            lanes in prop::collection::vec(prop::sample::select(vec![0u32, 0, 0, 1, 2]), 15),
            count in 1usize..=DEVICES,
        ) {
            let node = node(&lanes);
            let all: Vec<&DeviceView> = node.devices.iter().collect();
            let chosen = devices(&node, &all, count);
            let different: BTreeSet<u32> = chosen.iter().map(|device| device.site.place).collect();
            prop_assert_eq!((chosen.len(), different.len()), (count, count));
            let size = |one: &&DeviceView| all.iter().filter(|other| island(other) == island(one)).count();
            let is_joined = node.devices.iter().any(|device| !device.spec.links.is_empty());
            if is_joined && all.iter().any(|one| size(one) >= count) {
                prop_assert!(chosen.iter().all(|device| island(device) == island(chosen[0])));
            }
        }
    }

    #[test]
    fn in_a_large_island_a_set_is_grown_from_the_best_pair() {
        let mut scenario = Scenario::new();
        let ring: Vec<String> =
            (0..20).map(|one| format!("{one}+{}:{}", (one + 1) % 20, 1 + one % 2)).collect();
        scenario.line(&format!("node n1 20xh100 linked={}", ring.join(","))).unwrap();
        let node = scenario.snapshot().capacity.nodes[0].clone();
        let all: Vec<&DeviceView> = node.devices.iter().collect();
        let places = |count| devices(&node, &all, count).iter().map(|it| it.site.place).collect::<Vec<_>>();
        assert_eq!((places(2), places(4)), (vec![0, 19], vec![0, 1, 2, 19]));
    }
}
