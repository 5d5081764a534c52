//! Rooms: their members, and the posts in them.

use axum::extract::{Path, State};
use axum::response::Response;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_server::calls::rooms;
use lastword_server::{ApiError, Context};
use lastword_wire::{Post, RoomView, rfc3339};
use maud::{Markup, html};
use serde::Deserialize;

use super::agents::{View, name_link, views};
use super::forms::{Form, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{badge, encoded, foreign, foreign_line, plural, time, url};
use super::session::Viewer;

/// What a room is.
const WHAT: &str =
    "A room is a place for posts to several agents; a bridge such as Discord opens one for each channel.";

/// `GET /rooms`: the list of rooms.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let rooms = rooms::list(&ctx, viewer.caller).await?.items;
    let main = html! {
        (heading("Rooms", &html! { span.faint { (plural(rooms.len() as u64, "room", "rooms")) } }))
        (views(View::Rooms))
        @if rooms.is_empty() { (empty("No rooms.", &html! { (WHAT) })) }
        @if !rooms.is_empty() { p.faint { (WHAT) } div.list role="list" { @for room in &rooms { (row(room)) } } }
    };
    let topics = [Topic::Rooms, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: "Rooms", place: Place::Agents, topics: &topics, main }).await
}

fn row(room: &RoomView) -> Markup {
    html! {
        div.row.room role="listitem" tabindex="-1" data-row {
            div.what { a href={ (url("/rooms/")) (encoded(&room.name)) } { b { (foreign_line(&room.name)) } } @if room.latched { " " (badge("held")) } }
            div.who { (foreign_line(&room.members.join(", "))) }
            div.counts {
                (plural(room.messages, "post", "posts"))
                @if room.agent_messages > 0 { " · " span.faint { (room.agent_messages) " towards its limits, refused ones included" } }
            }
        }
    }
}

/// `GET /rooms/{name}`: one room with its last posts.
pub(super) async fn one(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let (room, posts) = rooms::show(&ctx, viewer.caller, &name).await?;
    let main = html! {
        (heading(&room.name, &html! { @if room.latched { (badge("held")) } }))
        p.facts {
            span { (plural(room.messages, "post", "posts")) ", " (plural(room.agent_messages, "post", "posts")) " by agents since a human spoke, refused ones included" }
            span { "members: " @for (index, member) in room.members.iter().enumerate() { @if index > 0 { ", " } (name_link(member)) } }
        }
        @if room.latched { p { "The room is held until a human posts in it." } }
        (form(&viewer, &room.name))
        h2 { "Posts" }
        @if posts.is_empty() { (empty("No posts yet.", &html! {})) }
        ul.lines {
            @for post in &posts {
                li data-row tabindex="-1" { b { (foreign_line(&post.from)) } " " (time(&rfc3339(post.at), moment.now)) (foreign(&post.body)) }
            }
        }
        p { a href=(url("/rooms")) { "All rooms" } }
    };
    let topics = [Topic::Rooms, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: &room.name, place: Place::Agents, topics: &topics, main }).await
}

fn form(viewer: &Viewer, name: &str) -> Markup {
    viewer.fill_in(
        "post-form",
        &format!("/rooms/{}", encoded(name)),
        &html! {
            label { span { "Post" } textarea name="body" rows="3" required {} }
            p.faint {
                @if viewer.role <= Role::Approver { "Your post starts the count of agents' posts again, and ends a hold. " }
                @else { "A viewer's post neither starts the count of agents' posts again nor ends a hold. " }
                @if viewer.role <= Role::Operator { "An agent that it mentions, such as @coder, gets it as a request with its own grant." }
                @else { "Mentioning an agent, such as @coder, asks it to work, which needs the role operator." }
            }
            p { button.main type="submit" { "Post" } }
        },
    )
}

#[derive(Debug, Deserialize)]
pub(super) struct Written {
    #[serde(default)]
    body: String,
}

/// `POST /rooms/{name}`: posts in a room.
pub(super) async fn post(
    State(ctx): State<Context>,
    Path(name): Path<String>,
    form: Form<Written>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let body = filled(&fields.body).ok_or_else(|| ApiError::new(Code::Malformed, "Enter a post"))?;
    rooms::post(&ctx, viewer.caller, &name, Post { body, mentions: None, reference: None }, None).await?;
    Ok(viewer.leads_to(&format!("/rooms/{}", encoded(&name))))
}
