//! What lines say of how devices are joined, and within which of a node's islands tasks must lie.

use super::words::Words;
use crate::model::device::{DeviceSpec, Link};
use crate::model::island::{IslandAsk, IslandLevel};

/// Two devices, by their places, and the lanes between them.
type Joint = (u32, u32, u32);

/// Which of so many devices are joined: by `linked` all with each other, by `linked=2` each group of so many consecutive ones, by
/// `linked=0+1:2,1+2` the pairs that are named, by so many lanes.
fn joints(words: &Words, count: u32) -> Result<Vec<Joint>, String> {
    let among = |first: u32, end: u32| {
        (first..end).flat_map(move |one| (one + 1..end).map(move |other| (one, other, 1)))
    };
    let Some(text) = words.named.get("linked") else {
        return Ok(if words.has("linked") { among(0, count).collect() } else { Vec::new() });
    };
    let wrong = || {
        format!(
            "linked={text}: write how many devices each are joined (2), or which, by how many lanes (0+1:2)"
        )
    };
    if let Ok(each) = text.parse::<u32>() {
        let each = Some(each).filter(|each| *each > 0).ok_or_else(wrong)?;
        let groups = (0..count).step_by(each as usize);
        return Ok(groups.flat_map(|first| among(first, (first.saturating_add(each)).min(count))).collect());
    }
    let one = |joint: &str| {
        let (pair, lanes) = joint.split_once(':').unwrap_or((joint, "1"));
        let (one, other) = pair.split_once('+')?;
        let (one, other) = (one.parse::<u32>().ok()?, other.parse::<u32>().ok()?);
        let lanes = lanes.parse::<u32>().ok().filter(|lanes| *lanes > 0)?;
        (one != other && one.max(other) < count).then_some((one, other, lanes))
    };
    text.split(',').map(|joint| one(joint).ok_or_else(wrong)).collect()
}

/// The links of each of so many devices.
pub(super) fn links(
    words: &Words,
    count: u32,
    uuid: impl Fn(u32) -> String,
) -> Result<Vec<Vec<Link>>, String> {
    let mut links: Vec<Vec<Link>> = vec![Vec::new(); count as usize];
    for (one, other, lanes) in joints(words, count)? {
        for (from, to) in [(one, other), (other, one)] {
            links[from as usize].push(Link { uuid: uuid(to), lanes });
        }
    }
    Ok(links)
}

/// The words that may say how these devices are joined, the shortest first.
pub(super) fn words_for(devices: &[DeviceSpec]) -> Vec<String> {
    let place = |uuid: &str| devices.iter().position(|device| device.uuid == uuid);
    let mut named = Vec::new();
    for (one, device) in devices.iter().enumerate() {
        let ends = device.links.iter().filter_map(|link| Some((place(&link.uuid)?, link.lanes)));
        named.extend(
            ends.filter(|(other, _)| *other > one).map(|(other, lanes)| format!("{one}+{other}:{lanes}")),
        );
    }
    if named.is_empty() {
        return vec![String::new()];
    }
    let each = devices.first().map_or(0, |first| first.links.len()) + 1;
    vec![" linked".to_owned(), format!(" linked={each}"), format!(" linked={}", named.join(","))]
}

/// The level of the pool, and the one within a node, that `within=rack,nvlink` names.
pub(super) fn levels<'a>(
    name: &str,
    text: &'a str,
) -> Result<(Option<&'a str>, Option<IslandLevel>), String> {
    let (mut outer, mut inner) = (None, None);
    for level in text.split(',') {
        let twice = match level.parse() {
            Ok(level) => inner.replace(level).is_some(),
            Err(_) => outer.replace(level).is_some(),
        };
        if twice {
            return Err(format!("{name}={text}: name one level of the pool and one within a node at most"));
        }
    }
    Ok((outer, inner))
}

/// Where the devices of each task lie within their node: what is required goes before what is preferred.
pub(super) fn island(within: Option<IslandLevel>, near: Option<IslandLevel>) -> Option<IslandAsk> {
    let of = |level: Option<IslandLevel>, required| level.map(|level| IslandAsk { level, required });
    of(within, true).or(of(near, false))
}
