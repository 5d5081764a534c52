//! The channels through which humans are notified, and the forms that add, test and remove one.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_server::calls::humans;
use lastword_server::views::{ListedChannel, NewWebhook};
use lastword_server::{ApiError, Context};
use maud::{Markup, html};
use serde::Deserialize;

use super::bound;
use super::forms::{Form, Nothing, filled};
use super::frame::ErrorPage;
use super::live::Topic;
use super::parts::{encoded, foreign_line, url};
use super::session::Viewer;
use super::team::{field, reply};

/// Returns the routes of the forms.
pub(super) fn routes() -> Router<Context> {
    Router::new().route("/team/channels", post(add)).route("/team/channels/{name}/{verb}", post(act))
}

/// Shows the channels, on the page of the team.
pub(super) fn section(ctx: &Context, viewer: &Viewer) -> Markup {
    let listed: Vec<ListedChannel> = ctx.channels.list().into_iter().filter(|one| one.channel.is_listed()).collect();
    html! {
        section.card #notifications aria-labelledby="notifications-title" {
            header { h2 #notifications-title { "Notifications" } }
            @if listed.is_empty() {
                p { "Nobody is notified while no page of the console is open. An owner adds webhooks here; each human switches on " a href=(url("/devices")) { "devices" } "." }
            }
            ul.lines { @for one in &listed { li { (channel(viewer, one)) } } }
            @if viewer.role <= Role::Owner {
                details #add-channel {
                    summary { "Add a webhook" }
                    (viewer.fill_in("add-webhook", "/team/channels", &html! {
                        div.fields.wide {
                            (field("name", "Name", true, "desk"))
                            (field("url", "Address", true, "https://hooks.example/lastword"))
                            label { span { "Notify of" } select name="minimum" {
                                @for severity in ["low", "normal", "urgent"] {
                                    option value=(severity) selected[severity == "normal"] { (notified_of(severity)) }
                                }
                            } }
                            (field("secret", "Secret that signs each call", false, "made if empty"))
                        }
                        button type="submit" { "Add" }
                    }))
                    p.faint { "A channel that runs a program on the server is a table " code { "[[notify]]" } " in " code { (bound::place(ctx)) } "." }
                }
            }
        }
    }
}

/// Returns what a channel with this least severity is notified of.
fn notified_of(severity: &str) -> &'static str {
    match severity {
        "low" => "everything",
        "urgent" => "what is urgent",
        _ => "what an agent waits for",
    }
}

fn channel(viewer: &Viewer, ListedChannel { channel, is_added }: &ListedChannel) -> Markup {
    let (name, severity) = (channel.name(), channel.minimum());
    let path = encoded(name);
    html! {
        p { b { (foreign_line(name)) } " " (foreign_line(&channel.destination())) " "
            span.faint { "notified of " (notified_of(severity)) ", at most " (channel.hourly_max()) " an hour" } }
        div.buttons {
            @if viewer.role <= Role::Operator {
                (viewer.form(&format!("test-{path}"), &format!("/team/channels/{path}/test"), &html! {
                    button type="submit" aria-label={ "Send a test through " (name) } { "Send a test" }
                }))
            }
            @if *is_added && viewer.role <= Role::Owner {
                (viewer.asked(&format!("remove-channel-{path}"), &format!("/team/channels/{path}/remove"),
                    &format!("Remove the channel {name}? It isn't notified any more."),
                    &html! { button.danger type="submit" aria-label={ "Remove the channel " (name) } { "Remove" } }))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct WebhookFields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    secret: String,
    minimum: String,
}

/// `POST /team/channels`: adds a webhook, and shows the secret once.
async fn add(State(ctx): State<Context>, form: Form<WebhookFields>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let WebhookFields { name, url, secret, minimum } = fields;
    let name = name.trim().to_owned();
    let new = NewWebhook { name: name.clone(), url: url.trim().to_owned(), secret: filled(&secret), minimum };
    let secret = ctx.channels.add(new).await?;
    let card = html! {
        div.made {
            p { "The channel " b { (foreign_line(&name)) } " is notified from now on. Its calls are signed with this secret, shown once:" }
            pre.rule { (foreign_line(&secret)) }
        }
    };
    reply(&ctx, &viewer, &card).await
}

/// `POST /team/channels/{name}/{verb}`: `test` sends a test notification, `remove` removes a webhook that a human added.
async fn act(
    State(ctx): State<Context>,
    Path((name, verb)): Path<(String, String)>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let words = match verb.as_str() {
        "test" => {
            humans::require(&ctx, viewer.caller, Role::Operator).await?;
            let listed = ctx.channels.list().into_iter().find(|one| one.channel.name() == name);
            let channel = listed.ok_or_else(|| ApiError::unknown(&name))?.channel;
            let failed = |problem: String| ApiError::new(Code::Malformed, format!("{name} failed: {problem}"));
            channel.test().await.map_err(failed)?;
            html! { "Sent a test through " (foreign_line(&name)) "." }
        }
        "remove" => {
            humans::require(&ctx, viewer.caller, Role::Owner).await?;
            ctx.channels.remove(&name).await?;
            html! { "Removed the channel " (foreign_line(&name)) "." }
        }
        _ => return Err(ApiError::unknown(&verb).into()),
    };
    Ok(viewer.done(&words, "/team#notifications", &[Topic::Agents]))
}
