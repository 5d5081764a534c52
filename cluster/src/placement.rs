//! Which node leads which workspace: rendezvous hashing, so that a node that comes or goes moves only its own share.

use sha2::{Digest as _, Sha256};

/// Returns the nodes in the order in which they should lead a workspace.
pub(crate) fn order<'a>(workspace: &str, nodes: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ranked: Vec<_> = nodes.map(|node| (weight(workspace, node), node)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.into_iter().map(|(_, node)| node).collect()
}

fn weight(workspace: &str, node: &str) -> u64 {
    // Names have no line break, so no two pairs give the same text.
    let hash = Sha256::digest(format!("{workspace}\n{node}"));
    hash.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const NODES: [&str; 3] = ["a", "b", "c"];

    #[test]
    fn a_node_that_goes_moves_only_what_it_led() {
        let first = |workspace: &str, nodes: &[&'static str]| order(workspace, nodes.iter().copied())[0];
        for workspace in (0..300).map(|n| format!("team-{n}")) {
            let before = first(&workspace, &NODES);
            let after = first(&workspace, &["a", "c"]);
            assert!(before == "b" || before == after, "{workspace}: {before} -> {after}");
        }
    }

    #[test]
    fn each_node_leads_a_fair_share() {
        let mut shares = BTreeMap::new();
        for n in 0..3_000 {
            *shares.entry(order(&format!("team-{n}"), NODES.into_iter())[0]).or_insert(0) += 1;
        }
        assert!(shares.values().all(|share| (850..1_150).contains(share)), "{shares:?}");
    }
}
