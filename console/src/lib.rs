//! The console: pages for the humans of a workspace, in a browser.
//!
//! Pages are HTML written by the server, each a GET without effects. Forms are POSTs with a secret that only this
//! session knows. Open pages stay current through hints: `/live` sends what changed, and the page reloads the part of
//! itself that shows it. A page is one file with a function that returns a `layout::Page`; code that pages share is
//! in `layout` and `parts`, and what they alone read of the state and the log is in `reads`.

mod activity;
mod agent_forms;
mod agents;
mod always;
mod assets;
mod axis;
mod bound;
mod call;
mod callback;
mod channels;
mod claims;
mod clock;
mod compose;
mod conversation;
mod conversations;
mod decision;
mod devices;
mod edit;
mod exchange;
mod film;
mod forms;
mod frame;
mod graph;
mod highlight;
mod inbox;
mod incidents;
mod layout;
mod limit_forms;
mod limits;
mod links;
mod live;
mod log;
mod markdown;
mod message;
mod nodes;
mod now;
mod packed;
mod pages;
mod palette;
mod parts;
mod passkeys;
mod reads;
mod rooms;
mod schedules;
mod session;
mod sign_in;
mod spend;
mod team;
mod terms;
mod tree;
mod waterfall;
mod work;
mod workspace;

use axum::Router;
use axum::middleware;
use axum::response::Redirect;
use axum::routing::{get, post};
use lastword_server::calls::sign_in::CALLBACK;
use lastword_server::{Context, Pages};

/// Returns the console for a server's configuration.
#[must_use]
pub fn pages() -> Pages {
    Pages { routes, nowhere: frame::nowhere }
}

/// Returns the console's routes, with the headers that all of its responses have.
fn routes(ctx: &Context) -> Router<Context> {
    let pages = Router::new()
        .route("/", get(now::page))
        .route("/inbox", get(inbox::page))
        .route("/waiting", get(inbox::waiting))
        .route("/questions/{id}", get(decision::page))
        .route("/escalations/{id}", get(decision::page))
        .route("/escalations/{id}/answer", post(inbox::answer))
        .route("/escalations/{id}/again", post(inbox::again))
        .route("/approvals/{id}", get(decision::page))
        .route("/approvals/{id}/always", get(always::page).post(always::allow))
        .route("/approvals/{id}/changes", post(edit::changes))
        .route("/approvals/{id}/{verb}", post(inbox::decide))
        .route("/unread/read", post(inbox::mark_read))
        .route("/inbox/alike/{verb}", post(inbox::decide_alike))
        .route("/dismiss", post(inbox::dismiss))
        .route("/inbox/reject", post(inbox::reject_many))
        .route("/conversations", get(conversations::page))
        .route("/conversations/{ref}", get(conversation::page))
        .route("/conversations/{ref}/film", get(film::file))
        .route("/conversations/{ref}/link", post(links::make))
        .route("/conversations/{ref}/link/end", post(links::end))
        .route("/conversations/{ref}/{verb}", post(conversation::control))
        .route(links::SHARED, get(links::entry).post(links::open))
        .route("/messages/{id}", get(message::page))
        .route("/agents", get(agents::page))
        .route("/graph", get(graph::page))
        .route("/agents/{name}", get(agents::one))
        .route("/agents/{name}/limits", post(agent_forms::limit))
        .route("/agents/{name}/grant", post(agent_forms::grant))
        .route("/agents/{name}/role", post(agent_forms::set_role))
        .route("/agents/{name}/{verb}", post(agents::act))
        .route("/compose", get(compose::page).post(compose::send))
        .route("/schedules", get(schedules::page).post(schedules::set))
        .route("/schedules/ticks", get(schedules::ticks))
        .route("/schedules/{name}/{verb}", post(schedules::act))
        .route("/incidents", get(async || Redirect::permanent("/inbox")))
        .route("/incidents/{id}", get(decision::page))
        .route("/claims", get(claims::page))
        .route("/claims/{id}/end", post(claims::end))
        .route("/rooms", get(rooms::page))
        .route("/rooms/{name}", get(rooms::one).post(rooms::post))
        .route("/limits", get(limits::page).post(limit_forms::change))
        .route("/limits/rules/withdraw", post(always::withdraw))
        .route("/settings", get(async || Redirect::permanent("/team")))
        .route("/team", get(team::page))
        .route("/team/agents", post(team::add_agent))
        .route("/team/humans", post(team::add_human))
        .route("/team/{name}/token", post(team::renew))
        .route("/team/{name}/remove", post(team::remove))
        .merge(channels::routes())
        .merge(devices::routes())
        .route("/overview", get(async || Redirect::permanent("/spend#activity")))
        .route("/nodes", get(nodes::page))
        .route("/spend", get(spend::page))
        .route("/workspace", get(workspace::page))
        .route("/workspace/question", get(workspace::ask))
        .route("/workspace/{verb}", post(workspace::control))
        .route("/standing", get(workspace::standing))
        .route("/clock", get(clock::standing))
        .route("/clock/accept", post(clock::accept))
        .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route(sign_in::DEVICE, get(devices::entry))
        .route(callback::BEGIN, get(callback::begin))
        .route(CALLBACK, get(callback::finish))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/attend", post(sign_in::attend))
        .route("/palette", get(palette::list))
        .route("/live", get(live::hints))
        .layer(middleware::from_fn_with_state(ctx.clone(), frame::around));
    // Outside of the layer: assets may be cached, and pages may not.
    pages.route("/assets/{name}", get(assets::serve)).route("/notifier.js", get(assets::notifier))
}
