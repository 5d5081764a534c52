// What is decided is what was seen: nothing moves under the pointer, a button that appeared or that the page moved does nothing
// for a second and says so, and no click or key decides a call that was not whole on the screen before.
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Broker, accessible, connected, launch, signedIn, until } from './world.mjs';

/** Random acts of the campaign; LASTWORD_CLICKS=10000 is the long one. */
const ACTS = Number(process.env.LASTWORD_CLICKS ?? 250);
const SEED = Number(process.env.LASTWORD_SEED ?? 1);

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start(`[limits]\ntask_questions_max = 20000\nescalations_open_max = 20\napprovals_open_max = 100\nsender_messages_max = 100000
[[approval]]\ntool = 'Soon'\nwho = ['human']\ntimeout = '10m'\n[[approval]]\ntool = 'Late'\nwho = ['human']\ntimeout = '1h'\n`);
  await broker.agent('coder');
  await broker.ask('coder', 'CALL-1', 'Make calls');
  await broker.take('coder');
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
  await page.addInitScript(model);
});

beforeEach(async () => {
  for (const id of await open()) await ignore(id);
  await page.mouse.move(0, 0);
  await page.goto(`${broker.url}/inbox`);
  await connected(page);
  await page.evaluate(() => window.decisions());
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const hold = async (tool, command) => (await broker.call('coder', 'POST', '/approvals', { tool, arguments: { command } })).id;
const state = async (id) => (await broker.call('coder', 'GET', `/approvals/${id}`)).state;
const ignore = (id) => broker.call('operator', 'POST', `/approvals/${id}/decision`, { decision: 'ignore' }).catch(() => {});
const open = async () => (await broker.call('operator', 'GET', '/approvals')).items.filter(({ state: is }) => is === 'pending').map(({ id }) => id);
const approve = (id) => page.locator(`#${id}-approve button`);
const live = (id) => until(() => approve(id).evaluate((button) => steady.isLive(button)), true);
const middle = async (locator) => {
  const { x, y, width, height } = await locator.boundingBox();
  return [x + width / 2, y + height / 2];
};

/**
 * The model, which shares nothing with the page's script: it looks at the page ten times a second, and at each decision that
 * is sent, says how long the call's texts had been seen and how long the button had stood still.
 */
function model() {
  const seen = {};
  const stood = {};
  // Kept over a navigation.
  const told = () => JSON.parse(sessionStorage.getItem('decisions') ?? '[]');
  window.decisions = () => { const all = told(); sessionStorage.removeItem('decisions'); return all; };
  const look = () => {
    const now = performance.now();
    const bars = [...document.querySelectorAll('#top, .flash')].map((one) => one.getBoundingClientRect());
    for (const card of document.querySelectorAll('.card[id^=apr-]')) {
      const digest = card.querySelector('[name=digest]')?.value;
      if (!seen[card.id] || seen[card.id].digest !== digest) seen[card.id] = { digest, parts: {}, whole: Infinity };
      const texts = [...card.querySelectorAll('.call pre')];
      // They lie over the text.
      const { left, right } = card.getBoundingClientRect();
      const over = bars.filter((bar) => bar.left < right && bar.right > left);
      const above = over.filter((bar) => bar.top < innerHeight / 2).map((bar) => bar.bottom);
      const below = over.filter((bar) => bar.top >= innerHeight / 2).map((bar) => bar.top);
      const from = Math.max(0, ...above, card.querySelector('header').getBoundingClientRect().bottom);
      const to = Math.min(innerHeight, ...below, card.querySelector('.decide')?.getBoundingClientRect().top ?? innerHeight);
      texts.forEach((text, at) => {
        const { top, bottom, height } = text.getBoundingClientRect();
        const part = (seen[card.id].parts[at] ??= {});
        if (height > 0 && top >= from - 3 && top <= to + 3) part.begin = true;
        if (height > 0 && bottom >= from - 3 && bottom <= to + 3) part.end = true;
      });
      const whole = texts.every((_, at) => seen[card.id].parts[at]?.begin && seen[card.id].parts[at]?.end);
      if (whole) seen[card.id].whole = Math.min(seen[card.id].whole, now);
      const button = card.querySelector('[data-approve]');
      if (!button) continue;
      const { x, y } = button.getBoundingClientRect();
      const { top, bottom } = card.getBoundingClientRect();
      const [before, at] = [stood[card.id], [top + scrollY, bottom + scrollY]];
      // Who scrolls moves nothing in the page.
      const scrolled = before && at.every((edge, n) => Math.abs(edge - before.at[n]) <= 3);
      const still = before && (scrolled || (Math.abs(before.x - x) <= 3 && Math.abs(before.y - y) <= 3));
      stood[card.id] = { x, y, at, since: still ? before.since : now };
    }
  };
  setInterval(look, 50);
  const { fetch } = window;
  window.fetch = (target, options) => {
    const [, id, verb] = /\/approvals\/(apr-\d+)\/(\w+)$/.exec(String(target?.url ?? target)) ?? [];
    const now = performance.now();
    const decision = { id, verb, seen: now - (seen[id]?.whole ?? now), stood: now - (stood[id]?.since ?? now) };
    if (id) sessionStorage.setItem('decisions', JSON.stringify([...told(), decision]));
    return fetch(target, options);
  };
}

test('a call that expires sooner is not inserted under the pointer, and is told of', async () => {
  const late = await hold('Late', 'make late');
  await approve(late).waitFor();
  await live(late);
  await page.mouse.move(...await middle(approve(late)));
  const soon = await hold('Soon', 'rm -rf soon');
  const note = page.locator('#newer');
  await note.getByText('1 new, expires sooner: show').waitFor();
  assert.equal(await page.locator(`#${soon}`).count(), 0);
  await page.mouse.down();
  await page.mouse.up();
  await until(() => state(late), 'approved');
  assert.equal(await state(soon), 'pending');
  // The settled card stays while the pointer is there: a second click decides nothing.
  await page.locator(`#${late}.settled`).waitFor();
  await page.mouse.down();
  await page.mouse.up();
  await accessible(page, 'a settled card');
  await page.mouse.move(0, 0);
  await page.locator(`#${soon}`).waitFor();
  assert.equal(await page.locator(`#${late}`).count(), 0);
  assert.equal(await state(soon), 'pending');
});

test('the outcome of a decision moves no other card', async () => {
  const [first, second] = [await hold('Late', 'make one'), await hold('Late', 'make two')];
  await approve(second).waitFor();
  await live(first);
  const at = () => page.locator(`#${second}`).boundingBox();
  const was = await at();
  await page.mouse.move(...await middle(approve(first)));
  await page.mouse.down();
  await page.mouse.up();
  await page.locator('#flash .flash').waitFor();
  assert.deepEqual(await at(), was);
  // The card stays in its place; what counts and what decides are told and gone.
  await page.locator(`#${first}.settled`).waitFor();
  await page.locator('#main > .heading').getByText('1 pending decision,').waitFor();
  await until(() => page.locator('#waiting').getAttribute('data-waiting'), '1');
  assert.ok(await approve(first).isHidden());
  assert.deepEqual(await at(), was);
});

test('what is new is shown by a press of its note', async () => {
  const late = await hold('Late', 'make late');
  await approve(late).waitFor();
  await live(late);
  await page.mouse.move(...await middle(approve(late)));
  const soon = await hold('Soon', 'make soon');
  await page.locator('#newer').click();
  await page.locator(`#${soon}`).waitFor();
  assert.ok(await page.locator('#newer').isHidden());
});

test('a button that appeared a moment ago decides nothing, by pointer or by key', async () => {
  // In the page, because a press from outside may come too late on a busy machine.
  const pressed = page.evaluate(() => new Promise((done) => {
    const known = new Set(document.querySelectorAll('[data-approve]'));
    const look = () => {
      const button = [...document.querySelectorAll('[data-approve]')].find((one) => !known.has(one));
      if (!button) { requestAnimationFrame(look); return; }
      button.click();
      button.focus();
      done(document.querySelector('#refused-press').textContent);
    };
    look();
  }));
  const id = await hold('Late', 'make it');
  assert.equal(await pressed, 'This moved as you pressed. Press again.');
  assert.deepEqual(await page.evaluate(() => window.decisions()), []);
  await accessible(page, 'a press that did nothing');
  await live(id);
  await page.keyboard.press('Enter');
  await until(() => state(id), 'approved');
});

/** Presses at once where the button is now, as a hasty person does. */
const hastily = async (button) => {
  const { x, y } = await button.evaluate((element) => {
    element.scrollIntoView({ block: 'center' });
    const { left, top, width, height } = element.getBoundingClientRect();
    return { x: left + width / 2, y: top + height / 2 };
  });
  await page.mouse.click(x, y);
};

test('a press right after the page came, or was scrolled, does what it says', async () => {
  const asked = [];
  for (let n = 0; n < 4; n += 1) asked.push((await broker.call('coder', 'POST', '/escalations', { message: `Which of ${n}?\n${'- a line\n'.repeat(30)}`, options: ['this', 'that'] })).id);
  const answered = (id) => until(async () => (await broker.call('operator', 'GET', `/escalations/${id}`)).answer, 'that');
  for (const id of asked.slice(0, 3)) {
    await page.goto(`${broker.url}/inbox`);
    await hastily(page.locator(`#${id}`).getByRole('button', { name: 'that' }));
    await answered(id);
    await page.mouse.move(0, 0);
    // No person answers two pages within half a second.
    await page.evaluate(() => sessionStorage.clear());
  }
  await page.goto(`${broker.url}/questions/${asked[3]}`);
  await hastily(page.getByRole('button', { name: 'that' }));
  await answered(asked[3]);
  await page.goto(`${broker.url}/team`);
  await page.locator('#add-human [name=name]').fill('anna');
  await page.evaluate(() => window.scrollTo(0, 0));
  await hastily(page.getByRole('button', { name: 'Invite' }));
  await page.locator('#add-human .made').waitFor();
});

test('the second press of a double click that led to a page decides nothing there, and says so', async () => {
  const { id } = await broker.call('coder', 'POST', '/escalations', { message: 'Which one?', options: ['this', 'that'] });
  await page.goto(`${broker.url}/questions/${id}`);
  const button = page.getByRole('button', { name: 'that' });
  const [x, y] = await middle(button);
  // As if the press had been now, however slow this machine is.
  await page.evaluate((at) => sessionStorage.setItem('lastword-pressed', JSON.stringify([Date.now() + 60_000, ...at])), [x, y]);
  await page.reload();
  await page.mouse.click(x, y);
  await page.getByRole('alert').getByText('This page came as you pressed. Press again.').waitFor();
  assert.equal((await broker.call('operator', 'GET', `/escalations/${id}`)).state, 'open');
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'this' });
});

test('a call that came into view a moment ago is not approved, and the page says why', async () => {
  const id = await hold('Late', 'make it');
  const fresh = await page.context().newPage();
  // As the page comes, because a press from outside may come too late on a busy machine.
  await fresh.addInitScript(() => addEventListener('load', () => {
    document.querySelector('[data-approve]').click();
    window.said = document.querySelector('#refused-press').textContent;
  }));
  await fresh.goto(`${broker.url}/approvals/${id}`);
  // The times of its head, which the script writes as those of the reader, may move its buttons as it loads.
  assert.match(await fresh.evaluate(() => window.said), /^(The call came into view a moment ago\. Read it, then press|This moved as you pressed\. Press) again\.$/);
  assert.equal(await state(id), 'pending');
  await fresh.close();
  await page.goto(`${broker.url}/approvals/${id}`);
  await live(id);
  await until(() => page.locator(`#${id}`).evaluate((card) => steady.unseen(card).length), 0);
  await hastily(approve(id));
  await until(() => state(id), 'approved');
});

test('what says why a press did nothing covers nothing that is read next', async () => {
  const id = await hold('Late', Array.from({ length: 60 }, (_, n) => `test -d r${n}`).join('\n'));
  await page.goto(`${broker.url}/approvals/${id}`);
  await live(id);
  for (let n = 0; n < 3; n += 1) {
    if (await state(id) !== 'pending') break;
    await approve(id).click();
    if (await page.locator('#refused-press').isHidden()) break;
    const [end, above] = await page.evaluate(() => [[...document.querySelectorAll('.call pre')].at(-1), document.querySelector('#refused-press')]
      .map((element, n) => element.getBoundingClientRect()[n ? 'top' : 'bottom']));
    const visible = await page.evaluate(() => innerHeight);
    assert.ok(end <= above + 1 || end > visible, `the call ends at ${end}, and the words begin at ${above}`);
  }
  await until(() => state(id), 'approved');
});

test('a button names its call', async () => {
  const id = await hold('Late', 'make it');
  await until(() => approve(id).textContent(), `Approve ${id}`);
});

test('the first press on a long call goes to the first line that was not seen, and it approves once its end was', async () => {
  const id = await hold('Late', Array.from({ length: 300 }, (_, n) => `echo ${n}`).join('\n'));
  await approve(id).waitFor();
  assert.match(await approve(id).textContent(), /unseen$/);
  await approve(id).click();
  assert.equal(await state(id), 'pending');
  await until(() => page.locator(`#${id} .call details[open]`).count(), 1);
  // Unfolded, and not read to its end.
  await page.evaluate(() => window.scrollTo(0, 0));
  await live(id).catch(() => {});
  await approve(id).evaluate((button) => button.click());
  assert.equal(await state(id), 'pending');
  await page.locator(`#${id} .call pre`).last().evaluate((text) => text.scrollIntoView({ block: 'end' }));
  await until(() => page.locator(`#${id}`).evaluate((card) => steady.unseen(card).length), 0);
  await approve(id).click();
  await until(() => state(id), 'approved');
});

test('without scripts a long call is approved on a page of its own, below all of it', async () => {
  const id = await hold('Late', Array.from({ length: 300 }, (_, n) => `echo ${n}`).join('\n'));
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await page.context().storageState() });
  const plain = await context.newPage();
  await plain.goto(`${broker.url}/inbox`);
  await plain.locator(`#${id}-approve button`).click();
  await plain.waitForURL(`${broker.url}/approvals/${id}`);
  assert.equal(await state(id), 'pending');
  assert.ok(await plain.locator('.call').getByText('echo 299').isVisible());
  assert.equal(await plain.locator('.call details').count(), 0);
  await plain.locator(`#${id}-approve button`).click();
  await plain.getByRole('button', { name: 'Yes, do it' }).click();
  await until(() => state(id), 'approved');
  await context.close();
});

test('an option is shown whole on its button', async () => {
  const option = `${'deploy to the region '.repeat(6)}and then delete the old one`;
  const { id } = await broker.call('coder', 'POST', '/escalations', { message: 'Which?', options: [option, 'no'] });
  const button = page.locator(`#${id}`).getByRole('button', { name: option });
  await button.waitFor();
  assert.equal(await button.textContent(), option);
  await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'no' });
});

test(`${ACTS} random inserts, moves, clicks and keys decide no call that was not seen`, { timeout: 3_600_000 }, async () => {
  let random = SEED;
  // Mulberry32: the same acts for the same seed.
  const next = (below) => {
    random = (random + 0x6d2b79f5) | 0;
    let mixed = Math.imul(random ^ (random >>> 15), 1 | random);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
  let made = 0;
  const acts = [
    async () => { if ((await open()).length < 8) await hold(next(2) ? 'Soon' : 'Late', `make ${made += 1}\n${'# more\n'.repeat(next(4))}`); },
    async () => { const all = await open(); if (all.length > 5) await ignore(all[next(all.length)]); },
    async () => {
      const buttons = await page.locator('[data-approve]').all();
      const box = buttons.length && await buttons[next(buttons.length)].boundingBox().catch(() => null);
      if (box) await page.mouse.move(box.x + 5, box.y + 5);
    },
    async () => {
      const button = page.locator('[data-approve]').first();
      const box = await button.boundingBox({ timeout: 100 }).catch(() => null);
      if (!box) return;
      await page.mouse.move(box.x + 5, box.y + 5);
      await page.waitForTimeout(1_150);
      await page.mouse.down();
      await page.mouse.up();
    },
    () => page.mouse.move(next(1_200), next(900)),
    async () => { await page.mouse.down(); await page.mouse.up(); },
    async () => { await page.mouse.down(); await page.mouse.up(); },
    () => page.mouse.wheel(0, next(800) - 400),
    () => page.keyboard.press(['j', 'k', 'a', 'Enter', 'Tab', 'Escape'][next(6)]),
    () => page.waitForTimeout(next(1_300)),
  ];
  // Keys may reach every button, and some end the test: stopping all, or signing out.
  await page.route((url) => /\/(sign-out|workspace|always)/.test(url.pathname), (route) => route.abort());
  const decisions = [];
  // A key may have begun to lead elsewhere.
  const home = () => until(() => page.goto(`${broker.url}/inbox`).then(() => connected(page)).then(() => true, () => false), true);
  // A key may have led to another page a moment ago.
  const collect = async () => decisions.push(...await page.evaluate(() => window.decisions()).catch(() => []));
  for (let n = 0; n < ACTS; n += 1) {
    await acts[next(acts.length)]();
    if (new URL(page.url()).pathname !== '/inbox') await home();
    if (n % 20 === 19) await collect();
  }
  await home();
  await collect();
  const wrong = decisions.filter(({ verb, seen, stood }) => verb === 'approve' && !(seen > 900 && stood > 900));
  console.log(`${ACTS} acts, ${decisions.length} decisions (${decisions.filter(({ verb }) => verb === 'approve').length} approvals), seed ${SEED}`);
  assert.deepEqual(wrong, []);
});
