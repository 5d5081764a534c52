//! The nodes of a cluster: which of them are alive, and which one leads this workspace.

use axum::extract::State;
use axum::response::Response;
use lastword_server::{Context, NodeView, NodesView};
use maud::{Markup, html};

use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::parts::{badge, foreign_line, plural};
use super::session::Viewer;

/// `GET /nodes`: the nodes.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let main = match &ctx.nodes {
        Some(known) => table(&known.nodes()),
        None => html! {
            (heading("Nodes", &html! {}))
            (empty("This server runs alone.", &html! { "Several nodes over NATS keep a workspace served when one of them is lost." }))
        },
    };
    viewer.page(&ctx, &moment, Page { title: "Nodes", place: Place::Team, topics: &[], main }).await
}

fn table(known: &NodesView) -> Markup {
    let NodesView { nodes, leader, epoch, stores } = known;
    let alive = nodes.iter().filter(|node| node.alive).count();
    html! {
        (heading("Nodes", &html! { span.faint { (alive) " of " (plural(nodes.len() as u64, "node", "nodes")) " alive" } }))
        @if alive < 2 { p { "If this node is lost, nobody serves this workspace." } }
        @for fault in stores { p { (foreign_line(fault)) } }
        div.scroll { table {
            thead { tr { th { "Node" } th { "State" } th { "This workspace" } th { "Address" } th { "Version" } } }
            tbody { @for node in nodes { (row(node, leader.as_deref(), *epoch)) } }
        } }
        p.faint { "A node is alive if it renewed its record in the last 3 seconds. When the leader is lost, the next one leads after about 3 seconds." }
    }
}

fn row(node: &NodeView, leader: Option<&str>, epoch: u64) -> Markup {
    let leads = leader == Some(node.name.as_str());
    html! {
        tr {
            td { b { (foreign_line(&node.name)) } }
            td { @if node.alive { "alive" } @else { (badge("not heard of")) } }
            td {
                @if leads { "leads, epoch " (epoch) }
                @else if !node.alive { "–" }
                @else if node.able { "follows" }
                @else { (badge("behind")) }
            }
            td { (foreign_line(&node.url)) }
            td { (foreign_line(&node.version)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_who_leads_who_follows_and_who_is_lost() {
        let node = |name: &str, alive, able| NodeView {
            name: name.into(),
            url: format!("http://{name}"),
            version: "1".into(),
            alive,
            able,
        };
        let nodes = vec![node("a", true, true), node("b", true, false), node("c<", false, true)];
        let page = table(&NodesView { nodes, leader: Some("a".into()), epoch: 7, stores: vec!["n2 is away".into()] })
            .into_string();
        for part in ["2 of 3 nodes alive", "leads, epoch 7", "behind", "c&lt;", "not heard of"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("If this node is lost"));
        let alone =
            table(&NodesView { nodes: vec![node("a", true, true)], leader: None, epoch: 0, stores: Vec::new() })
                .into_string();
        assert!(alone.contains("If this node is lost, nobody serves this workspace.") && alone.contains("follows"));
    }
}
