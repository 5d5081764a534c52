use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct World {
    view: ClusterView,
    revision: u64,
}

impl World {
    /// A cluster of three as `me` sees it, in which all have just been heard of.
    fn new(me: &str, now: Duration) -> Self {
        let mut world = Self { view: ClusterView::new(me), revision: 0 };
        world.put("workspace.main", b"{}", now);
        for node in ["a", "b", "c"] {
            world.beat(node, "s1", now);
        }
        world
    }

    fn put(&mut self, key: &str, value: &[u8], now: Duration) -> u64 {
        self.revision += 1;
        let record = Record { key: key.to_owned(), value: Some(value.to_vec()), revision: self.revision };
        self.view.apply(&record, now);
        self.view.look(now);
        self.revision
    }

    fn beat(&mut self, node: &str, session: &str, now: Duration) {
        self.beat_unfit(node, session, Vec::new(), now);
    }

    fn beat_unfit(&mut self, node: &str, session: &str, unfit: Vec<String>, now: Duration) {
        let info = NodeInfo {
            session: session.into(),
            url: format!("http://{node}"),
            pin: None,
            version: "1".into(),
            unfit,
            ..NodeInfo::default()
        };
        self.put_node(node, &info, now);
    }

    fn put_node(&mut self, node: &str, info: &NodeInfo, now: Duration) {
        self.put(&node_key(node), &serde_json::to_vec(info).unwrap(), now);
    }

    fn leave(&mut self, node: &str, now: Duration) {
        let info = NodeInfo { leaving: true, ..self.view.nodes[node].info.clone() };
        self.put_node(node, &info, now);
    }

    fn lease(&mut self, node: &str, session: &str, next: Option<Option<&str>>, now: Duration) -> u64 {
        let lease = LeaseRecord {
            node: node.into(),
            session: session.into(),
            released: next.is_some(),
            next: next.flatten().map(str::to_owned),
        };
        self.put("lease.main", &serde_json::to_vec(&lease).unwrap(), now)
    }
}

fn ranks() -> Vec<&'static str> {
    order("main", ["a", "b", "c"].into_iter())
}

#[test]
fn the_first_in_order_leads_a_workspace_that_nobody_led() {
    for (rank, node) in ranks().into_iter().enumerate() {
        let world = World::new(node, s(2));
        assert_eq!(world.view.wants("main", s(1), true), None, "the others may be about to start");
        assert_eq!(world.view.wants("main", s(2), true), (rank == 0).then_some(0), "{node}");
        assert_eq!(world.view.wants("other", s(9), true), None);
    }
}

#[test]
fn a_leader_that_is_heard_of_keeps_its_workspace_and_a_dead_one_is_followed_in_order() {
    let order = ranks();
    for (rank, node) in order.iter().enumerate().skip(1) {
        let mut world = World::new(node, s(10));
        let epoch = world.lease(order[0], "s1", None, s(10));
        assert_eq!(world.view.leader("main", s(12)).unwrap().epoch, epoch);
        assert_eq!(world.view.wants("main", s(12), true), None);
        for other in &order[1..] {
            world.beat(other, "s1", s(13));
        }
        assert_eq!(world.view.leader("main", s(13)), None);
        // The dead one is out of the order, so the second is the first.
        assert_eq!(world.view.wants("main", s(13), true), (rank == 1).then_some(epoch));
        assert_eq!(world.view.wants("main", s(14), true), Some(epoch), "the next one after a second more");
    }
}

#[test]
fn another_run_of_a_node_does_not_hold_what_the_earlier_one_held() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    world.lease(order[0], "s0", None, s(10));
    assert_eq!(world.view.leader("main", s(10)), None);
    assert_eq!(world.view.wants("main", s(10), true), None, "it may take it back at once");
    let mut own = World::new(order[0], s(10));
    let earlier = own.lease(order[0], "s0", None, s(10));
    assert_eq!(own.view.wants("main", s(10), true), Some(earlier));
    // As after a failure of NATS, in which no other node could take the lease.
    let lapsed = own.lease(order[0], "s1", None, s(11));
    assert_eq!(own.view.wants("main", s(11), true), Some(lapsed));
}

#[test]
fn what_is_released_goes_to_the_node_that_was_named_and_to_another_if_that_one_dies() {
    let order = ranks();
    for (node, at_once) in [(order[2], true), (order[1], false)] {
        let mut world = World::new(node, s(10));
        let released = world.lease(order[0], "s1", Some(Some(order[2])), s(10));
        assert_eq!(world.view.wants("main", s(10), true), at_once.then_some(released), "{node}");
        for alive in ["a", "b", "c"] {
            world.beat(alive, "s1", s(15));
        }
        assert_eq!(world.view.wants("main", s(15), true), Some(released));
    }
}

#[test]
fn a_workspace_moves_to_the_node_that_should_lead_it_once_the_nodes_are_steady() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    world.lease(order[1], "s1", None, s(10));
    assert_eq!(world.view.hand_over("main", s(12)), None);
    for at in 11..17 {
        for node in &order {
            world.beat(node, "s1", s(at));
        }
    }
    assert_eq!(world.view.hand_over("main", s(16)), Some(order[0].to_owned()));
    assert_eq!(world.view.successor("main", s(16)), Some(order[0].to_owned()));
}

#[test]
fn a_node_that_cannot_lead_is_handed_nothing_and_takes_nothing_while_another_can() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    let epoch = world.lease(order[1], "s1", None, s(10));
    for at in 11..17 {
        world.beat_unfit(order[0], "s1", vec!["main".into()], s(at));
        world.beat(order[1], "s1", s(at));
        world.beat(order[2], "s1", s(at));
    }
    assert_eq!(world.view.hand_over("main", s(16)), None);
    assert_eq!(world.view.successor("main", s(16)), Some(order[2].to_owned()));
    let mut unfit = World::new(order[0], s(10));
    unfit.lease(order[1], "s1", None, s(10));
    for at in [13, 16, 19] {
        unfit.beat_unfit(order[0], "s1", vec!["main".into()], s(at));
        unfit.beat(order[2], "s1", s(at));
    }
    assert_eq!(unfit.view.wants("main", s(19), true), None);
    unfit.beat_unfit(order[0], "s1", vec!["main".into()], s(30));
    assert_eq!(unfit.view.wants("main", s(30), true), Some(epoch), "alone, it does what it can");
}

#[test]
fn one_of_the_living_forgets_a_node_that_was_silent_for_long() {
    for (me, forgets) in [("a", true), ("b", false)] {
        let mut world = World::new(me, s(10));
        for at in (11..=700).step_by(2) {
            world.beat("a", "s1", s(at));
            world.beat("b", "s1", s(at));
        }
        assert_eq!(world.view.expired(s(609)), []);
        let silent = vec![("c".to_owned(), world.view.nodes["c"].revision)];
        assert_eq!(world.view.expired(s(610)), if forgets { silent } else { Vec::new() });
    }
}

#[test]
fn a_node_that_most_of_the_others_do_not_reach_leads_nothing_while_another_is_reached() {
    let order = ranks();
    let mut world = World::new(order[0], s(10));
    world.lease(order[0], "s1", None, s(10));
    for at in 11..17 {
        order.iter().for_each(|node| world.beat(node, "s1", s(at)));
    }
    let mut deaf = |node: &str, unreached: &[&str]| {
        let unreached = unreached.iter().map(|node| (*node).to_owned()).collect();
        let info = NodeInfo { unreached, ..world.view.nodes[node].info.clone() };
        world.put_node(node, &info, s(16));
        world.view.hand_over("main", s(16))
    };
    assert_eq!(deaf(order[1], &[order[0]]), None, "one of two: that one may be cut off");
    assert_eq!(deaf(order[2], &[order[0]]), Some(order[1].to_owned()));
    assert_eq!(deaf(order[0], &[order[1]]), Some(order[1].to_owned()), "what it says of one counts as one");
    assert_eq!(deaf(order[2], &[order[0], order[1]]), Some(order[2].to_owned()));
    assert_eq!(deaf(order[1], &[order[0], order[2]]), Some(order[2].to_owned()));
    assert_eq!(deaf(order[0], &[order[1], order[2]]), None, "nobody is reached, and the first goes on");
}

#[test]
fn a_node_that_leaves_is_handed_nothing_and_takes_nothing() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    for at in 11..17 {
        order.iter().for_each(|node| world.beat(node, "s1", s(at)));
    }
    world.leave(order[0], s(16));
    let released = world.lease(order[0], "s1", Some(Some(order[1])), s(16));
    assert_eq!(world.view.wants("main", s(16), true), Some(released));
    world.lease(order[1], "s1", None, s(16));
    assert_eq!(world.view.hand_over("main", s(17)), None, "it isn't handed back");
    assert_eq!(world.view.successor("main", s(17)), Some(order[2].to_owned()));
    let mut leaving = World::new(order[0], s(10));
    leaving.lease(order[1], "s1", None, s(10));
    leaving.leave(order[0], s(10));
    assert!(leaving.view.says_leaving());
    for node in &order[1..] {
        leaving.leave(node, s(16));
    }
    assert_eq!(leaving.view.wants("main", s(19), true), None, "also if no other node is left");
}

#[test]
fn who_was_cut_off_itself_declares_nobody_dead_at_once() {
    let mut world = World::new("a", s(10));
    assert_eq!(world.view.alive(s(20)).count(), 0);
    world.view.hear_anew(s(20));
    assert_eq!(world.view.alive(s(20)).count(), 3);
}
