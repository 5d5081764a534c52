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
        self.put_at(key, value, now, Time(0))
    }

    /// Does the same while this node's wall clock shows that time.
    fn put_at(&mut self, key: &str, value: &[u8], now: Duration, wall: Time) -> u64 {
        self.revision += 1;
        let record = Record { key: key.to_owned(), value: Some(value.to_vec()), revision: self.revision };
        self.view.apply(&record, now, wall);
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
            rest: None,
            rested: None,
        };
        self.put("lease.main", &serde_json::to_vec(&lease).unwrap(), now)
    }

    /// Has the node that leads a workspace put it to rest for that long; that node's wall clock shows `since`.
    fn rest(&mut self, workspace: &str, lasts: Option<Duration>, now: Duration, since: u64) -> u64 {
        let node = ranks_of(workspace)[0];
        let lease = LeaseRecord {
            node: node.into(),
            session: "s1".into(),
            released: true,
            next: None,
            rest: Some(Rest {
                lasts_ms: lasts.map(|lasts| lasts.as_millis() as u64),
                tokens: Some(String::new()),
                config: 0,
            }),
            rested: Some(Rested { at: 5_000, since }),
        };
        let value = serde_json::to_vec(&lease).unwrap();
        self.put_at(&lease_key(workspace), &value, now, Time(since))
    }

    /// Wakes a workspace, and returns the node that should lead it.
    fn wake(&mut self, workspace: &str, now: Duration) -> String {
        let (_, lease) = self.view.wake(workspace, now).unwrap();
        self.put(&lease_key(workspace), &serde_json::to_vec(&lease).unwrap(), now);
        lease.next.unwrap()
    }

    fn all_beat(&mut self, now: Duration) {
        ["a", "b", "c"].iter().for_each(|node| self.beat(node, "s1", now));
    }
}

fn ranks_of(workspace: &str) -> Vec<&'static str> {
    order(workspace, ["a", "b", "c"].into_iter())
}

fn ranks() -> Vec<&'static str> {
    ranks_of("main")
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

#[test]
fn a_workspace_at_rest_is_wanted_by_nobody_until_somebody_wakes_it() {
    let order = ranks();
    for node in &order {
        let mut world = World::new(node, s(10));
        let before = world.rest("main", None, s(10), 0);
        for at in 11..40 {
            world.all_beat(s(at));
        }
        assert_eq!(world.view.wants("main", s(39), true), None);
        assert!(world.view.leader("main", s(39)).is_none() && !world.view.is_awake("main"));
        assert!(world.view.is_settled(s(39)), "nobody has to look at it");
        assert_eq!((world.view.resting(), world.view.rest("main").is_some()), (1, true));
        let (replaced, woken) = world.view.wake("main", s(39)).unwrap();
        assert_eq!((replaced, woken.next.as_deref(), woken.rest), (before, Some(order[0]), None));
        world.wake("main", s(39));
        assert!(world.view.is_awake("main") && world.view.wake("main", s(39)).is_none(), "once");
        assert_eq!(world.view.wants("main", s(39), true).is_some(), *node == order[0], "the one that led it last");
        assert!(!world.view.is_settled(s(39)));
    }
}

#[test]
fn the_first_in_order_is_woken_if_the_node_is_gone_that_led_last() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    world.rest("main", None, s(10), 0);
    for at in 11..20 {
        order[1..].iter().for_each(|node| world.beat(node, "s1", s(at)));
    }
    assert_eq!(world.wake("main", s(19)), order[1]);
    assert!(world.view.wants("main", s(19), true).is_some());
    let mut alone = World::new(order[2], s(10));
    alone.rest("main", None, s(10), 0);
    assert!(alone.view.wake("main", s(20)).is_none(), "nobody is heard of");
}

#[test]
fn what_woke_where_it_was_led_moves_only_once_the_others_follow() {
    let order = ranks();
    let mut world = World::new(order[1], s(10));
    for at in 11..30 {
        world.all_beat(s(at));
    }
    world.lease(order[1], "s1", None, s(29));
    assert_eq!(world.view.hand_over("main", s(29)), None);
    (30..36).for_each(|at| world.all_beat(s(at)));
    assert_eq!(world.view.hand_over("main", s(35)), Some(order[0].to_owned()));
}

#[test]
fn time_wakes_what_is_due_at_the_first_of_the_living_and_later_at_the_others() {
    for (rank, node) in ranks_of("w").into_iter().enumerate() {
        let mut world = World::new(node, s(10));
        for name in ["w", "never", "late"] {
            world.put(&workspace_key(name), b"{}", s(10));
        }
        world.rest("w", Some(s(20)), s(10), 0);
        world.rest("never", None, s(10), 0);
        world.rest("late", Some(s(1_000)), s(10), 0);
        (11..40).for_each(|at| world.all_beat(s(at)));
        let pause = rank as u64;
        assert!(world.view.due(s(30 + pause) - Duration::from_millis(1), 9).is_empty());
        assert_eq!(world.view.due(s(30 + pause), 9), ["w"]);
        assert_eq!(world.view.due(s(35), 0), [""; 0], "some at a time");
        world.wake("w", s(35));
        assert!(world.view.due(s(36), 9).is_empty());
        world.rest("w", Some(s(1)), s(36), 0);
        world.view.apply(&Record { key: workspace_key("w"), value: None, revision: 999 }, s(36), Time(0));
        assert!(world.view.due(s(39), 9).is_empty(), "it was removed");
    }
}

#[test]
fn a_new_configuration_wakes_what_rests_with_an_earlier_one() {
    let mut world = World::new(ranks()[0], s(10));
    world.rest("main", None, s(10), 0);
    assert!(world.view.due(s(11), 9).is_empty());
    world.put(&config_key("main"), b"[limits]", s(11));
    assert_eq!(world.view.due(s(11), 9), ["main"]);
}

#[test]
fn a_rest_is_as_old_as_this_node_has_known_it_whatever_the_wall_clocks_show() {
    let mut world = World::new("a", s(10));
    world.beat("a", "s1", s(10));
    // The clock of the node that led is an hour behind, or ahead.
    for since in [0, 7_200_000] {
        world.rest("main", Some(s(60)), s(10), since);
        let lease = world.view.leases["main"].lease.clone();
        world.put_at("lease.main", &serde_json::to_vec(&lease).unwrap(), s(30), Time(3_600_000));
        world.all_beat(s(69));
        assert_eq!(world.view.rested("main", s(40)).unwrap().1, Time(5_000 + 30_000), "the broker's time goes on");
        assert!(world.view.due(s(69), 9).is_empty());
    }
    // A node that starts has only the wall clock.
    let mut late = World { view: ClusterView::new("a"), revision: 0 };
    late.put("workspace.main", b"{}", s(0));
    let lease = serde_json::to_vec(&world.view.leases["main"].lease).unwrap();
    late.put_at("lease.main", &lease, s(0), Time(7_200_000 + 50_000));
    assert_eq!(late.view.rested("main", s(3)).unwrap().1, Time(5_000 + 53_000));
}

#[test]
fn a_rest_stays_known_to_those_who_lead_later_until_the_next_one() {
    let order = ranks();
    let mut world = World::new(order[0], s(10));
    world.rest("main", Some(s(9)), s(10), 0);
    world.all_beat(s(14));
    world.wake("main", s(15));
    let woken = world.view.leases["main"].lease.clone();
    let taken = LeaseRecord { released: false, next: None, ..woken };
    world.put("lease.main", &serde_json::to_vec(&taken).unwrap(), s(16));
    assert_eq!(world.view.rested("main", s(20)).unwrap().1, Time(15_000));
    assert!(world.view.leader("main", s(16)).is_some());
}

#[test]
fn records_of_earlier_versions_read_and_nothing_rests_while_one_of_their_nodes_lives() {
    let old = br#"{"node":"a","session":"s1","released":true,"next":"b"}"#;
    let read: LeaseRecord = serde_json::from_slice(old).unwrap();
    assert_eq!((read.rest.clone(), read.rested), (None, None));
    assert_eq!(serde_json::to_vec(&read).unwrap(), old, "and theirs read what says nothing new");
    let node: NodeInfo = serde_json::from_slice(br#"{"session":"s","url":"http://a","version":"0"}"#).unwrap();
    assert!(!node.rests);
    let mut world = World::new("a", s(10));
    assert!(!world.view.may_rest(s(10)));
    for node in ["a", "b"] {
        let info = NodeInfo { rests: true, ..world.view.nodes[node].info.clone() };
        world.put_node(node, &info, s(14));
    }
    assert!(world.view.may_rest(s(14)), "the third isn't heard of");
}

#[test]
fn a_record_of_a_workspace_that_is_read_once_more_is_no_news() {
    let mut world = World::new("a", SETTLE);
    let record = |revision| Record { key: "workspace.w".to_owned(), value: Some(b"{}".to_vec()), revision };
    assert!(world.view.apply(&record(90), SETTLE, Time(0)));
    assert!(!world.view.apply(&record(90), SETTLE, Time(0)), "a watch begins with what the start read");
    assert!(world.view.apply(&record(91), SETTLE, Time(0)), "it was made again");
}
