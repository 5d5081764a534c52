// The real program between a real server and discord-digital-twin. It knows one bot: the broker's, which is kilo's, too.
// It takes every token for that bot's, and has no rate limits.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { DigitalDiscord } from 'discord-digital-twin'

const lastword = process.env.LASTWORD
const dir = mkdtempSync(join(tmpdir(), 'lastword-twin-'))
const children = []
const warnings = []
let discord, channel, user, stranger, url

/** Runs the program to its end; gives what it printed. */
async function run(...args) {
  const all = ['--token-file', '.lastword/operator.token', ...args]
  return (await promisify(execFile)(lastword, all, { cwd: dir, timeout: 20000 })).stdout
}

/** Starts the program; gives its first event that fits. */
function start(args, fits) {
  const child = spawn(lastword, args, { cwd: dir, stdio: ['ignore', 'pipe', 'inherit'] })
  children.push(child)
  const lines = createInterface({ input: child.stdout })
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${args} ended with ${code}`)))
    lines.on('line', (line) => {
      const event = JSON.parse(line)
      if (event.event === 'warning') warnings.push(event)
      if (fits(event)) resolve(event)
    })
  })
}

/** A call of an agent or the operator. */
async function call(method, path, token, body) {
  const headers = { Authorization: `Bearer ${readFileSync(join(dir, token), 'utf8').trim()}` }
  if (body) headers['Content-Type'] = 'application/json'
  const answer = await fetch(`${url}/v1${path}`, { method, headers, body: body && JSON.stringify(body) })
  assert.ok(answer.ok, `${path}: ${answer.status}`)
  return answer.json()
}

/** Waits for a message in a channel or thread. */
function message(place, predicate) {
  return discord.channel(place).waitForMessage({ timeout: 20000, predicate })
}

/** The button whose word begins so. */
function button(card, word) {
  return card.components.flatMap((row) => row.components).find((part) => part.label.startsWith(word)).custom_id
}

before(async () => {
  discord = new DigitalDiscord({ channels: [{ name: 'den', type: 0 }], users: [{ username: 'ann' }, { username: 'bob' }] })
  await discord.start()
  channel = (await discord.prisma.channel.findMany())[0].id
  user = (await discord.prisma.user.findFirst({ where: { username: 'ann' } })).id
  stranger = (await discord.prisma.user.findFirst({ where: { username: 'bob' } })).id
  writeFileSync(join(dir, 'bot.token'), discord.botToken)
  chmodSync(join(dir, 'bot.token'), 0o600)
  writeFileSync(
    join(dir, 'lastword.toml'),
    `[discord]\napi = "http://127.0.0.1:${discord.port}"\ngateway = "${discord.gatewayUrl}"\n` +
      `channels = ["${channel}"]\nhome = "${channel}"\nhumans = ["${user}"]\nbroker = { token_file = "bot.token" }\n` +
      `[[discord.bot]]\nagent = "kilo"\ntoken_file = "bot.token"\n` +
      `[[discord.bot]]\nagent = "lima"\ntoken_file = "missing.token"\n`,
  )
  url = (await start(['serve', '--json', '--listen', '127.0.0.1:0'], (event) => event.listening)).listening
  for (const agent of ['kilo', 'lima']) writeFileSync(join(dir, `${agent}.token`), await run('agent', 'add', agent))
  const ready = (event) => event.event === 'ready'
  const human = ['--token-file', '.lastword/operator.token', '--json']
  await start([...human, 'run', '--as', 'kilo', '--', 'tr', 'a-z', 'A-Z'], ready)
  await start([...human, 'discord'], ready)
})

after(async () => {
  for (const child of children.reverse()) {
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    await gone
  }
  await discord.stop()
  rmSync(dir, { recursive: true, force: true })
})

let thread

test('a mention is a request, and its answer is posted in a thread', async () => {
  const ann = discord.channel(channel).user(user)
  await ann.sendMessage({ content: `<@${discord.botUserId}> fix the login form` })
  const named = { timeout: 20000, predicate: (one) => one.name.includes('login form') }
  thread = (await discord.channel(channel).waitForThread(named)).id
  const answer = await message(thread, (said) => said.content.includes('FIX THE LOGIN FORM'))
  assert.match(answer.content, /^\[FROM:kilo\]\[TO:operator\]\[TYPE:RESPONSE\]\[REF:D-/)
  assert.equal(answer.author.id, discord.botUserId)
})

test('an agent whose bot has no token is out of service alone', async () => {
  assert.equal(warnings.filter((one) => one.message.includes('lima')).length, 1, JSON.stringify(warnings))
  const checked = await run('discord', 'check').catch((failed) => failed)
  assert.equal(checked.code, 1)
  assert.match(checked.stdout, /✗ lima .*missing\.token/)
  assert.match(checked.stdout, /✓ kilo/)
})

test('a reply in the thread goes on with its conversation', async () => {
  const answer = await message(thread, (said) => said.content.includes('FIX THE LOGIN FORM'))
  const messageReference = { message_id: answer.id, channel_id: thread }
  await discord.channel(thread).user(user).sendMessage({ content: 'and the logout form', messageReference })
  await message(thread, (said) => said.content.includes('AND THE LOGOUT FORM'))
  assert.equal((await call('GET', '/messages?type=request', '.lastword/operator.token')).items.length, 2)
})

test('an edit asks for nothing', async () => {
  const asked = await message(thread, (said) => said.content === 'and the logout form')
  const ann = discord.channel(thread).user(user)
  await ann.editMessage({ messageId: asked.id, content: `<@${discord.botUserId}> edited` })
  await ann.sendMessage({ content: `<@${discord.botUserId}> something new` })
  await message(thread, (said) => said.content.includes('SOMETHING NEW'))
  const asks = await call('GET', '/messages?type=request', '.lastword/operator.token')
  assert.ok(!asks.items.some((ask) => ask.body.includes('edited')))
  assert.equal(asks.items.length, 3)
})

test('a held call is approved with a button', async () => {
  const held = await call('POST', '/approvals', 'lima.token', { tool: 'deploy', arguments: { to: 'eu' } })
  const card = await message(channel, (said) => said.content.includes('asks to call `deploy`'))
  await discord.channel(channel).user(user).clickButton({ messageId: card.id, customId: button(card, 'Approve') })
  const settled = await message(channel, (said) => said.content.includes('✅ Approved by operator'))
  assert.equal(settled.id, card.id, 'the card itself says so')
  assert.ok(!settled.components?.length, 'it has no buttons any more')
  const used = await call('POST', `/approvals/${held.id}/use`, 'lima.token', { tool: 'deploy', arguments: { to: 'eu' } })
  assert.equal(used.state, 'used')
})

test('a question is answered in a form', async () => {
  await call('POST', '/escalations', 'lima.token', { message: 'Which day?', ref: 'DAY-1' })
  const card = await message(channel, (said) => said.content.includes('Which day?'))
  const ann = discord.channel(channel).user(user)
  const click = await ann.clickButton({ messageId: card.id, customId: button(card, 'Answer') })
  assert.equal((await discord.channel(channel).waitForInteractionAck({ interactionId: click.id })).type, 9)
  await ann.submitModal({ customId: button(card, 'Answer'), fields: [{ customId: 'words', value: 'Monday' }] })
  await message(channel, (said) => said.id === card.id && said.content.includes('answered: Monday'))
})

test('/lastword is known and answers', async () => {
  const [ann, bob] = [user, stranger].map((one) => discord.channel(channel).user(one))
  const stop = { name: 'lastword', options: [{ name: 'stop', type: 1, options: [] }] }
  // A crowd that may not: its commands are refused, and the stop doesn't wait behind them.
  await Promise.all(Array.from({ length: 150 }, () => bob.runSlashCommand(stop)))
  await ann.runSlashCommand(stop)
  await message(channel, (said) => said.content.includes('Stopped **everything**'))
  const controls = await run('--json', 'tail', '-n', '10000')
  assert.equal(controls.split('"controlled"').length, 2, 'one stop, by ann')
  await ann.runSlashCommand({ name: 'lastword', options: [{ name: 'resume', type: 1, options: [] }] })
  await message(channel, (said) => said.content.includes('Resumed **everything**'))
  // What comes after it is dealt with after it.
  await ann.sendMessage({ content: `<@${discord.botUserId}> one more` })
  await message(channel, (said) => said.content.includes('one more'))
  await discord.channel(channel).waitForThread({ timeout: 20000, predicate: (one) => one.name.includes('one more') })
  const events = (await run('--json', 'tail', '-n', '10000')).trim().split('\n').map((line) => JSON.parse(line))
  const posts = events.filter((event) => event.type === 'posted').map((event) => event.agent)
  assert.deepEqual([...new Set(posts)], ['operator'], 'no answer of the broker counts as a post')
})
