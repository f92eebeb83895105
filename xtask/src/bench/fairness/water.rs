//! What each queue is due, by the definition alone: water-filling through the tree. Shares no code with the core, which works
//! in integers and keeps its results; here everything is computed anew in floats.

/// A queue, or a group of several.
#[derive(Clone, Debug)]
pub(super) struct Vessel {
    /// The vessel above it; the first vessel is the pool and has none.
    pub(super) parent: Option<usize>,
    /// What it gets first, as far as it wants it.
    pub(super) guarantee: f64,
    /// Its part of the surplus among its siblings.
    pub(super) weight: f64,
}

/// What each vessel gets of an amount, if each leaf wants what `wanted` says (the entries of other vessels do not
/// count). A parent stands before its children.
pub(super) fn fill(vessels: &[Vessel], amount: f64, wanted: &[f64]) -> Vec<f64> {
    let mut wants = wanted.to_vec();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); vessels.len()];
    for (at, vessel) in vessels.iter().enumerate() {
        if let Some(parent) = vessel.parent {
            children[parent].push(at);
        }
    }
    for at in (0..vessels.len()).rev() {
        if !children[at].is_empty() {
            wants[at] = children[at].iter().map(|child| wants[*child]).sum();
        }
    }
    let mut shares = vec![0.0; vessels.len()];
    shares[0] = wants[0].min(amount);
    for at in 0..vessels.len() {
        let some: Vec<_> = children[at].iter().map(|child| (&vessels[*child], wants[*child])).collect();
        let parts = among(&some, shares[at]);
        children[at].iter().zip(parts).for_each(|(child, part)| shares[*child] = part);
    }
    shares
}

/// Parts of an amount among siblings: guarantees first, each as far as it is wanted; then the surplus by weight, among
/// those that want more.
fn among(siblings: &[(&Vessel, f64)], amount: f64) -> Vec<f64> {
    let firm: Vec<f64> = siblings.iter().map(|(vessel, wants)| vessel.guarantee.min(*wants)).collect();
    let promised: f64 = firm.iter().sum();
    if promised >= amount {
        return firm.iter().map(|part| part * amount / promised.max(f64::MIN_POSITIVE)).collect();
    }
    let mut parts = firm;
    let mut left = amount - promised;
    // The level at which each is full, per unit of weight: the lowest fills first.
    let level = |at: usize, part: f64| (siblings[at].1 - part) / siblings[at].0.weight;
    let mut thirsty: Vec<usize> = (0..siblings.len()).filter(|at| siblings[*at].0.weight > 0.0).collect();
    thirsty.sort_by(|a, b| level(*a, parts[*a]).total_cmp(&level(*b, parts[*b])));
    let mut weight: f64 = thirsty.iter().map(|at| siblings[*at].0.weight).sum();
    for at in thirsty {
        let (vessel, wants) = siblings[at];
        let part = (left * vessel.weight / weight).min(wants - parts[at]);
        parts[at] += part;
        left -= part;
        weight -= vessel.weight;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vessel(parent: Option<usize>, guarantee: f64, weight: f64) -> Vessel {
        Vessel { parent, guarantee, weight }
    }

    /// The shares of a pool's queues, to the third digit.
    fn shares(vessels: &[Vessel], amount: f64, wanted: &[f64]) -> Vec<f64> {
        let shares = fill(vessels, amount, wanted);
        shares[1..].iter().map(|share| (share * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn guarantees_come_first_and_the_surplus_goes_by_weight() {
        let pool = [vessel(None, 0.0, 1.0), vessel(Some(0), 4.0, 1.0), vessel(Some(0), 0.0, 2.0)];
        assert_eq!(shares(&pool, 10.0, &[0.0, 99.0, 99.0]), [6.0, 4.0]);
        assert_eq!(shares(&pool, 10.0, &[0.0, 2.0, 99.0]), [2.0, 8.0]);
        assert_eq!(shares(&pool, 10.0, &[0.0, 99.0, 3.0]), [7.0, 3.0]);
        assert_eq!(shares(&pool, 10.0, &[0.0, 1.0, 1.0]), [1.0, 1.0]);
    }

    #[test]
    fn what_one_does_not_want_the_others_share_again() {
        let of = |weight| vessel(Some(0), 0.0, weight);
        let pool = [vessel(None, 0.0, 1.0), of(1.0), of(1.0), of(2.0)];
        assert_eq!(shares(&pool, 12.0, &[0.0, 1.0, 99.0, 99.0]), [1.0, 3.667, 7.333]);
    }

    #[test]
    fn children_share_what_their_parent_gets() {
        let pool = [
            vessel(None, 0.0, 1.0),
            vessel(Some(0), 2.0, 1.0),
            vessel(Some(0), 0.0, 1.0),
            vessel(Some(1), 2.0, 1.0),
            vessel(Some(1), 0.0, 1.0),
        ];
        // The surplus of eight goes by halves; within the first, two are guaranteed and four shared.
        assert_eq!(shares(&pool, 10.0, &[0.0, 0.0, 99.0, 99.0, 99.0]), [6.0, 4.0, 4.0, 2.0]);
    }

    #[test]
    fn nothing_is_given_twice_or_without_a_want() {
        let pool = [vessel(None, 0.0, 1.0), vessel(Some(0), 8.0, 1.0), vessel(Some(0), 8.0, 1.0)];
        assert_eq!(shares(&pool, 10.0, &[0.0, 9.0, 9.0]), [5.0, 5.0]);
        assert_eq!(shares(&pool, 0.0, &[0.0, 9.0, 0.0]), [0.0, 0.0]);
    }
}
