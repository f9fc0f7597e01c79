import { beforeEach, describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { fakeRelay } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, paired, run } from '../support/companion-cli.ts';
import { pair, post } from '../support/relay.ts';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

const env = () => ({ RELAY_PORT: String(relay.port) });
const phone = (words: string[], input = '') => run(['phone', ...words], { env: env(), input });

describe('svc phone', () => {
  it('send delivers to a connected phone, or queues and prints how to cancel', async () => {
    const queued = await phone(['send', 'one', '--title', 'Kitchen', '--chat', 'c1', '--surfacing', 'inbox']);
    expect([queued.code, queued.stderr]).toEqual([0, '']);
    const [, id] = /^Queued: ([0-9a-f]{12}) \(1 waiting\)\n/.exec(queued.stdout) ?? [];
    expect(queued.stdout).toContain(`svc phone cancel ${id}`);
    const device = await pair(relay);
    device.client.send('proactive', 'proactive.subscribe');
    const { payload } = await device.client.next({ type: 'phone.message' });
    expect(payload).toMatchObject({ message_id: id, text: 'one', title: 'Kitchen', chat_id: 'c1', surfacing: 'inbox' });
    expect((await phone(['send', '--', '--two'])).stdout).toMatch(/^Delivered: [0-9a-f]{12}\n$/);
    const sent = JSON.parse((await phone(['send', '-', '--json'], 'from\nstdin\n')).stdout);
    expect(sent).toEqual({
      message_id: expect.any(String),
      chat_id: null,
      delivered: true,
      buffered: 0,
      state: 'sent',
    });
    expect((await device.client.next({ id: sent.message_id })).payload).toMatchObject({ text: 'from\nstdin' });
  });

  it('send says which connected phone has messages switched off', async () => {
    const companion = begin(['companion', 'run', '--json', '--messages', 'off'], { home: await paired(relay.port) });
    await expect.poll(() => companion.events('state').at(-1)).toMatchObject({ state: 'online' });
    const { code, stdout } = await phone(['send', 'one']);
    expect(code).toBe(0);
    expect(stdout.replace(/\s+/g, ' ')).toMatch(
      /No phone is listening: [^:]+ \(Node [\d.]+, session [\w-]+\) is connected, but messages are switched off there\. The message is kept for 24 hours/,
    );
    const asked = await phone(['ask', 'Sure?', '--timeout', '1']);
    expect(asked.stderr.replace(/\s+/g, ' ')).toContain(
      'is connected, but messages are switched off there. It is queued',
    );
    companion.stop();
    await companion.ended;
    expect((await phone(['send', 'two'])).stdout).toContain('No phone is listening. The message is kept');
  });

  it('list and cancel', async () => {
    expect((await phone(['list'])).stdout).toBe('Nothing waits for a phone.\n');
    expect((await phone(['cancel', '--all'])).stdout).toBe('Nothing was waiting.\n');
    await relay.operator('/phone/message', post({ text: `a\u001b[31m\n${'x'.repeat(100)}`, message_id: 'm1' }));
    await relay.operator('/phone/message', post({ text: 'second', message_id: 'longer-id', chat_id: 'chat' }));
    const { stdout } = await phone(['list']);
    const [head = '', one = '', two = '', next] = stdout.split('\n');
    expect(head).toMatch(/^ID +WAITS +CHAT +TEXT$/);
    expect(one).toMatch(/^m1 +\d+ s +- +a\[31m x{50,}…$/);
    expect(two).toMatch(/^longer-id +\d+ s +chat +second$/);
    expect(two.indexOf('second')).toBe(head.indexOf('TEXT'));
    expect(next).toContain('svc phone cancel <id>');
    expect(JSON.parse((await phone(['list', '--json'])).stdout)).toMatchObject({ queued: 2 });
    expect(await phone(['cancel', 'longer-id'])).toMatchObject({ code: 0, stdout: 'Cancelled 1 message.\n' });
    const gone = await phone(['cancel', 'longer-id']);
    expect([gone.code, gone.stdout]).toEqual([1, '']);
    expect(gone.stderr).toMatch(/no message 'longer-id' waits.*\n.*svc phone list/);
    const all = await phone(['cancel', '--all', '--json']);
    expect([all.code, JSON.parse(all.stdout)]).toEqual([0, { cancelled: 1 }]);
  });

  it.each([
    [['send'], /missing <text>/],
    [['send', ' '], /the text is empty/],
    [['send', 'x'.repeat(16_385)], /at most 16384/],
    [['send', 'x', '--title', 'y'.repeat(257)], /title must have at most/],
    [['send', 'x', '--wait=soon'], /--wait: must be like/],
    [['send', 'x', '--wait=never'], /--wait: must have an end/],
    [['send', 'x', '--chat'], /--chat needs a value/],
    [['send', 'x', '--surfacing', 'banner'], /--surfacing: must be one of default, notification, inbox, session/],
    [['history', '-n', '0'], /--limit: must be a whole number/],
    [['send', 'x', 'y'], /unexpected argument/],
    [['send', '--wait', '5'], /missing <text>/],
    [['list', 'x'], /unexpected argument/],
    [['cancel'], /missing <id>/],
    [['cancel', 'x', '--all'], /not both/],
    [['dance'], /unknown command/],
  ])('wrongly asked (%#): exit 2, and where the help is', async (words, error) => {
    const result = await phone(words);
    expect([result.code, result.stdout]).toEqual([2, '']);
    expect(result.stderr).toMatch(error);
    expect(result.stderr).toMatch(/svc phone( \w+)? --help/);
  });

  it('prints what went wrong and what to do next: exit 1', async () => {
    const nobody = await run(['phone', 'list'], { env: { RELAY_PORT: String(await closedPort()) } });
    expect([nobody.code, nobody.stdout]).toEqual([1, '']);
    expect(nobody.stderr).toMatch(/no relay answers on 127\.0\.0\.1:\d+.*\n.*svc relay start/);
    const other = await fakeRelay(() => ({ status: 404, body: { error: 'not\u001b found' } }));
    for (const words of [['send', 'x'], ['send', 'x', '--wait=5'], ['list'], ['history'], ['cancel', '--all']]) {
      const result = await run(['phone', ...words], { env: { RELAY_PORT: String(other.port) } });
      expect([result.code, result.stdout]).toEqual([1, '']);
      expect(result.stderr).toMatch(/refused: not found \(HTTP 404\)\n.*Restart it/);
    }
    const late = await phone(['send', 'x', '--wait', '1']);
    expect([late.code, late.stdout]).toEqual([1, '']);
    expect(late.stderr).toMatch(/queued \(1 waiting\)\. Waiting 1 s.*\n.*no reply came within 1 s\n.*svc phone list/);
  });

  it('help shows every command with examples', async () => {
    expect((await phone(['--help'])).stdout).toMatch(/send <text>[\s\S]*list[\s\S]*cancel \[id\]/);
    expect((await phone(['send', '--help'])).stdout).toMatch(
      /--wait \[duration\][\s\S]*Leaves other replies alone[\s\S]*Examples:/,
    );
    expect((await run(['--help'])).stdout).toMatch(/phone <command>/);
  });

  it('send --wait prints only the reply on stdout, and leaves other replies alone', async () => {
    const device = await pair(relay);
    device.client.send('proactive', 'proactive.subscribe');
    await device.client.next({ type: 'proactive.subscribed' });
    const asking = begin(['phone', 'send', 'Deploy?', '--wait=20'], { env: env() });
    const message = await device.client.next({ type: 'phone.message' });
    // An agent that reads all replies meanwhile gets every other one, but not this one.
    const agent = relay.operator('/phone/replies?timeout=10');
    await expect.poll(() => relay.relay.phone.replies.waiting()).toBe(2);
    device.client.send('proactive', 'proactive.reply', {
      // ESC [ 8 m conceals what follows it.
      text: 'yes,\nnow\u001b[2J\u001b[8m\t\u202e!',
      chat_id: message.payload.chat_id,
      reply_to: message.id,
    });
    expect(await asking.ended).toMatchObject({ code: 0, stdout: 'yes,\nnow[2J[8m\t!\n' });
    expect(asking.stderr).toMatch(/^Delivered\. Waiting 20 s/);
    device.client.send('proactive', 'proactive.reply', { text: 'to the agent', chat_id: 'phone' });
    expect((await (await agent).json()).replies).toMatchObject([{ text: 'to the agent' }]);
  });

  it('send names the last state that it saw, and history lists what became of all', async () => {
    const waiting = begin(['phone', 'send', 'Anybody?', '--wait=20'], { env: env() });
    await waiting.prints(/queued \(1 waiting\)\. Waiting 20 s/);
    const device = await pair(relay);
    device.client.send('proactive', 'proactive.subscribe');
    const { id, payload } = await device.client.next({ type: 'phone.message' });
    await waiting.prints(/Delivered: a phone has connected\./);
    device.client.send('proactive', 'proactive.shown', { message_id: id });
    await waiting.prints(/The phone shows it\./);
    const { chat_id } = payload as { chat_id: string };
    device.client.send('proactive', 'proactive.reply', { text: 'me', chat_id, reply_to: id });
    expect(await waiting.ended).toMatchObject({ code: 0, stdout: 'me\n' });

    const shown = begin(['phone', 'send', 'Look'], { env: env(), tty: true });
    const second = await device.client.next({ type: 'phone.message' });
    device.client.send('proactive', 'proactive.shown', { message_id: second.id });
    expect(await shown.ended).toMatchObject({ code: 0, stdout: `Shown: ${second.id}\n` });
    const late = await phone(['send', 'Hm?', '--wait', '1']);
    expect(late.stderr).toMatch(/no reply came within 1 s\nThe phone has received it\./);

    const { stdout } = await phone(['history', '-n', '3']);
    const rows = stdout.trimEnd().split('\n');
    expect(rows[0]).toMatch(/^WHEN +KIND +STATE +ID +CHAT +TEXT$/);
    expect(rows[1]).toMatch(/ago +from phone +taken +\w+ +svc-\w+ +me$/);
    expect(rows[2]).toMatch(new RegExp(`ago +to phone +shown +${second.id} +- +Look$`));
    expect(rows[3]).toMatch(/ago +to phone +sent +\w+ +svc-\w+ +Hm\?$/);
    expect(rows).toHaveLength(4);
    // On a narrow terminal the text stands below.
    const narrow = await run(['phone', 'history', '-n', '3'], { env: env(), tty: true, columns: 60 });
    expect(narrow.stdout).toMatch(
      new RegExp(`^WHEN +KIND +STATE +ID +CHAT\\n {2}TEXT\\n.*${second.id} +-\\n {2}Look\\n`, 's'),
    );
    expect(narrow.stdout.split('\n').every((row) => row.length <= 60)).toBe(true);
    const all = JSON.parse((await phone(['history', '--json'])).stdout);
    expect(all.items.map(({ state }: { state: string }) => state)).toEqual(['answered', 'taken', 'shown', 'sent']);
  });

  it('send --wait --json ignores older replies of the chat, and an aborted wait takes nothing', async () => {
    const device = await pair(relay);
    device.client.send('proactive', 'proactive.subscribe');
    device.client.send('proactive', 'proactive.reply', { text: 'older', chat_id: 'c1' }, 'older');
    await device.client.next({ id: 'older' });
    await new Promise((resolve) => setTimeout(resolve, 5));
    const asking = begin(['phone', 'send', 'Well?', '--chat', 'c1', '--wait', '--json'], { env: env() });
    await device.client.next({ type: 'phone.message' });
    device.client.send('proactive', 'proactive.reply', { text: 'newer', chat_id: 'c1', message_id: 'r2' });
    const { code, stdout } = await asking.ended;
    expect([code, JSON.parse(stdout)]).toMatchObject([
      0,
      { chat_id: 'c1', delivered: true, reply: { text: 'newer', message_id: 'r2' }, replies: [{ text: 'newer' }] },
    ]);
    const stopped = begin(['phone', 'send', 'Hm?', '--chat', 'c1', '--wait'], { env: env() });
    await device.client.next({ type: 'phone.message' });
    stopped.stop();
    expect(await stopped.ended).toMatchObject({ code: 1 });
    expect(stopped.stderr).toMatch(/stopped before a reply came/);
    await expect.poll(() => relay.relay.phone.replies.waiting()).toBe(0);
    device.client.send('proactive', 'proactive.reply', { text: 'late', chat_id: 'c1' }, 'late');
    await device.client.next({ id: 'late' });
    const { replies } = await (await relay.operator('/phone/replies?timeout=0')).json();
    expect(replies.map(({ text }: { text: string }) => text)).toEqual(['older', 'late']);
  });
});

describe('svc phone ask (contract 09 §7, §10)', () => {
  const ask = (words: string[]) => begin(['phone', 'ask', ...words], { env: env() });
  async function listen() {
    const device = await pair(relay);
    device.client.send('proactive', 'proactive.subscribe');
    await device.client.next({ type: 'proactive.subscribed' });
    const reply = (to: string, payload: Record<string, unknown>) =>
      device.client.send('proactive', 'proactive.reply', { reply_to: to, ...payload });
    return { ...device, reply };
  }
  const leftover = async () => (await (await relay.operator('/phone/replies?timeout=0')).json()).replies;

  it('prints the answer, and its exit code says which one it was', async () => {
    const device = await listen();
    const cases: [Record<string, unknown>, string, number][] = [
      [{ text: 'yes', answer_index: 0 }, 'yes\n', 0],
      [{ text: 'no', answer_index: 1 }, 'no\n', 11],
      [{ text: 'not sure', answer_index: 2 }, 'not sure\n', 12],
      [{ text: 'No ' }, 'No \n', 11],
      [{ text: 'ask again\nat eight' }, 'ask again\nat eight\n', 3],
    ];
    for (const [reply, stdout, code] of cases) {
      const asking = ask(['Deploy now?', '--answers', 'yes, no,not sure', '--timeout', '20', '--title', 'Release']);
      const { id, payload } = await device.client.next({ type: 'phone.message' });
      expect(payload).toMatchObject({
        title: 'Release',
        metadata: { question: true, answers: ['yes', 'no', 'not sure'] },
      });
      device.reply(id, reply);
      expect(await asking.ended).toMatchObject({ code, stdout });
      expect(asking.stderr).toMatch(/^Delivered\. Waiting 20 s for the answer\.\n/);
    }
    const asking = ask(['Which? 1. red 2. blue', '--json', '--timeout=20']);
    const { id } = await device.client.next({ type: 'phone.message' });
    device.reply(id, { text: 'blue', answer_index: 1 });
    const { code, stdout } = await asking.ended;
    expect([code, JSON.parse(stdout)]).toEqual([
      11,
      { message_id: id, chat_id: expect.any(String), answer: 'blue', answer_index: 1, after_s: expect.any(Number) },
    ]);
    expect(await leftover()).toEqual([]);
  });

  it('without an answer the question is withdrawn, also on Ctrl-C: exit 4, and the last line says what to do', async () => {
    const device = await listen();
    const silent = ask(['Deploy now?', '--timeout', '1']);
    const first = await device.client.next({ type: 'phone.message' });
    expect(await silent.ended).toMatchObject({ code: 4, stdout: '' });
    expect(silent.stderr).toMatch(
      /no answer came within 1 s\nThe question was withdrawn\.\nA phone received it\..*svc phone history\n$/,
    );
    const withdrawn = await device.client.next({ type: 'phone.message.cancelled' });
    expect(withdrawn.payload).toEqual({ message_id: first.id, reason: 'withdrawn' });

    const stopped = ask(['Deploy now?', '--answers', 'yes,no', '--json']);
    const second = await device.client.next({ type: 'phone.message' });
    stopped.stop();
    const { code, stdout } = await stopped.ended;
    expect([code, JSON.parse(stdout)]).toMatchObject([4, { answer: null, no_answer: true, message_id: second.id }]);
    expect((await device.client.next({ type: 'phone.message.cancelled' })).payload.message_id).toBe(second.id);
    device.client.send('proactive', 'proactive.reply', { reply_to: second.id, text: 'yes', answer_index: 0 }, 'late');
    await device.client.next({ id: 'late' });
    expect((await phone(['history', '-n', '1'])).stdout).toMatch(/from phone +too late +/);
    expect(stopped.stderr).toMatch(/stopped before an answer came/);

    // Somebody else withdraws it.
    const cancelled = ask(['Deploy now?']);
    const third = await device.client.next({ type: 'phone.message' });
    await cancelled.prints(/Waiting 300 s/);
    expect(await phone(['cancel', third.id])).toMatchObject({ code: 0, stdout: 'Cancelled 1 message.\n' });
    expect(await cancelled.ended).toMatchObject({ code: 4 });
    device.client.close();
    await expect.poll(() => relay.relay.phone.listening()).toBe(0);
    const nobody = await phone(['ask', 'Anybody?', '--timeout', '1']);
    expect(nobody).toMatchObject({ code: 4 });
    expect(nobody.stderr).toMatch(/No phone received it\. Open the app on a phone, then ask again\.\n$/);
    expect((await phone(['list'])).stdout).toBe('Nothing waits for a phone.\n');
    expect(await leftover()).toEqual([]);
  });

  it('refuses bad answers and times before the relay is asked: exit 2', async () => {
    for (const words of [
      ['Deploy?', '--answers', 'yes,yes'],
      ['Deploy?', '--answers', 'a,b,c,d,e'],
      ['Deploy?', '--answers', ''],
      ['Deploy?', '--answers', 'x'.repeat(41)],
      ['Deploy?', '--timeout', '2d'],
      ['Deploy?', '--timeout', '0'],
      [' '],
    ]) {
      const { code, stdout } = await phone(['ask', ...words]);
      expect([code, stdout], words.join(' ')).toEqual([2, '']);
    }
    expect((await phone(['send', 'Deploy?', '--answers', 'yes,yes'])).code).toBe(2);
    expect((await phone(['ask', '--help'])).stdout).toMatch(
      /--answers <list>[\s\S]*Examples:[\s\S]*exits 0 for red, 11 for blue/,
    );
  });

  it('send --answers --wait prints the answer', async () => {
    const device = await listen();
    const asking = begin(['phone', 'send', 'Go?', '--answers', 'now,later', '--wait=20', '--json'], { env: env() });
    const { id, payload } = await device.client.next({ type: 'phone.message' });
    expect(payload.metadata).toEqual({ question: true, answers: ['now', 'later'] });
    device.reply(id, { text: 'later', answer_index: 1 });
    expect(JSON.parse((await asking.ended).stdout)).toMatchObject({ reply: { text: 'later', answer_index: 1 } });
  });
});

describe('the companion and messages', () => {
  it('09 §10: number keys answer on a terminal, where a question is closed and a late answer told aloud', async () => {
    const home = await paired(relay.port);
    const companion = begin(['companion', 'run', '--messages', 'on'], { home, tty: true });
    await companion.prints(/Messages are now delivered here/);
    const asking = begin(['phone', 'ask', 'Deploy?', '--answers', 'yes,no', '--timeout', '20'], { env: env() });
    await companion.prints(/Message: Deploy\? {2}\[1 yes {2}2 no\]/);
    await companion.prints(/\? Deploy\? {2}1 yes {2}2 no {2}x later/);
    companion.type('2');
    expect(await asking.ended).toMatchObject({ code: 11, stdout: 'no\n' });
    await companion.prints(/you: no/);
    await companion.prints(/The relay received your reply: no/);
    // It is answered, so the key switches a grant again.
    companion.type('1');
    await companion.prints(/screen_inspection: /);
    const message = { text: 'Now?', message_id: 'q2' };
    await relay.operator('/phone/message', post(message));
    await companion.prints(/\? Now\? {2}1 Yes {2}2 No/);
    await relay.relay.phone.withdraw('q2');
    await companion.prints(/Withdrawn: Now\?/);
    const mirror = await pair(relay);
    mirror.client.send('proactive', 'proactive.subscribe', { mirror: true });
    await mirror.client.next({ type: 'proactive.subscribed' });
    await relay.operator('/phone/message', post({ text: 'Third?', message_id: 'q3' }));
    await companion.prints(/\? Third\? {2}1 Yes/);
    mirror.client.send('proactive', 'proactive.reply', { text: 'No', answer_index: 1, reply_to: 'q3' }, 'r');
    await mirror.client.next({ id: 'r' });
    companion.type('1');
    await companion.prints(/! Yes: too late\. Another answer came first\./);
  });

  it('09 §10: a script answers by the index', async () => {
    const home = await paired(relay.port);
    const companion = begin(['companion', 'run', '--json', '--messages', 'on'], { home });
    await companion.prints(/"subscribed":true/);
    const asking = begin(['phone', 'ask', 'Deploy?', '--answers', 'yes,no', '--timeout', '20'], { env: env() });
    await companion.prints(/"event":"message"/);
    expect(companion.events('message')).toMatchObject([{ text: 'Deploy?', answers: ['yes', 'no'] }]);
    companion.type('{"reply":{"answer_index":0}}\n');
    expect(await asking.ended).toMatchObject({ code: 0, stdout: 'yes\n' });
    await expect.poll(() => companion.events('reply')).toMatchObject([{ answer_index: 0, state: 'received' }]);
    await relay.operator('/phone/message', post({ text: 'Now?', message_id: 'q2' }));
    await expect.poll(() => companion.events('message').length).toBe(2);
    await relay.relay.phone.withdraw('q2');
    await expect.poll(() => companion.events('closed')).toMatchObject([{ message_id: 'q2', reason: 'withdrawn' }]);
  });

  it('a script turns messages on, receives each, and replies', async () => {
    const home = await paired(relay.port);
    await relay.operator('/phone/message', post({ text: 'waited', message_id: 'm1', chat_id: 'c1', title: 'T' }));
    const companion = begin(['companion', 'run', '--json'], { home });
    await companion.prints(/"state":"online"/);
    companion.type('{"messages":true}\n');
    await companion.prints(/"event":"backlog"/);
    expect(companion.events('message')).toMatchObject([
      {
        message_id: 'm1',
        chat_id: 'c1',
        title: 'T',
        text: 'waited',
        surfacing: null,
        reply_to: null,
        queued: true,
        surface: 'notification',
      },
    ]);
    expect(companion.events('backlog')).toMatchObject([{ count: 1 }]);
    expect(companion.events('messages')).toMatchObject([{ subscribed: true }]);
    companion.type('{"reply":{"text":"fine"}}\n{"reply":{"text":"new","chat_id":"t-new"}}\n');
    await expect.poll(() => companion.events('reply').length).toBe(2);
    const { replies } = await (await relay.operator('/phone/replies?timeout=0')).json();
    expect(replies).toMatchObject([
      { text: 'fine', chat_id: 'c1', reply_to: 'm1' },
      { text: 'new', chat_id: 't-new', reply_to: null },
    ]);
    for (const said of ['{"reply":5}', '{"reply":{"text":""}}', '{"reply":{"text":"x","chat_id":5}}']) {
      const before = companion.events('notice').length;
      companion.type(`${said}\n`);
      await expect.poll(() => companion.events('notice').length).toBe(before + 1);
    }
    companion.type('{"messages":false}\n');
    await expect.poll(() => companion.events('messages').length).toBe(2);
    await expect
      .poll(async () => (await relay.operator('/phone/message', post({ text: 'x' }))).json())
      .toMatchObject({ queued: true });
    companion.stop();
    await companion.ended;
    // The toggle is stored.
    const again = begin(['companion', 'run', '--json', '--messages', 'on'], { home });
    await again.prints(/"event":"backlog"/);
    again.stop();
    await again.ended;
    const third = begin(['companion', 'run', '--json'], { home });
    await third.prints(/"subscribed":true/);
  });

  it('on a terminal, t turns messages on, messages are shown, w writes a reply and Esc cancels it', async () => {
    const home = await paired(relay.port);
    const companion = begin(['companion', 'run'], { home, tty: true });
    await companion.prints(/online: [^|]*\| master off/);
    companion.type('w');
    await companion.prints(/There is no message to reply to/);
    companion.type('t');
    await companion.prints(/Messages are now delivered here/);
    await companion.prints(/messages ON/);
    await relay.operator('/phone/message', post({ text: 'Dinner\u001b[2J?', title: 'Kitchen', chat_id: 'k' }));
    await companion.prints(/Message from Kitchen: Dinner\[2J\?/);
    companion.type('w');
    await companion.prints(/Reply to Kitchen: _/);
    companion.type('qmab\u007f');
    await companion.prints(/Reply to Kitchen: qma_/);
    companion.type('\r');
    await companion.prints(/you: qma/);
    await companion.prints(/The relay received your reply: qma/);
    const { replies } = await (await relay.operator('/phone/replies?timeout=0')).json();
    expect(replies).toMatchObject([{ text: 'qma', chat_id: 'k' }]);
    companion.type('w');
    await companion.prints(/Reply to Kitchen: _/);
    companion.type('never');
    await companion.prints(/never_/);
    companion.type('\u001b');
    companion.type('i');
    await companion.prints(/Messages\n[\s\S]*Kitchen: Dinner/);
    await relay.operator('/phone/message', post({ text: 'quiet', surfacing: 'inbox' }));
    await companion.prints(/Message: quiet/);
    companion.type('q');
    expect((await companion.ended).code).toBe(0);
    expect(await (await relay.operator('/phone/replies?timeout=0')).json()).toEqual({ replies: [] });
  });
});

it('issue 5: sent while the companion is off, it arrives marked, and its reply reaches the waiting send', async () => {
  const home = await paired(relay.port);
  const asking = begin(['phone', 'send', 'Are you there?', '--title', 'Agent', '--wait=20'], { env: env() });
  await asking.prints(/queued \(1 waiting\)/);
  const companion = begin(['companion', 'run', '--json', '--messages', 'on'], { home });
  await companion.prints(/"event":"backlog"/);
  expect(companion.events().filter(({ event }) => event === 'message' || event === 'backlog')).toMatchObject([
    { event: 'message', text: 'Are you there?', queued: true, surface: 'notification' },
    { event: 'backlog', count: 1 },
  ]);
  companion.type('{"reply":{"text":"Here I am"}}\n');
  expect(await asking.ended).toMatchObject({ code: 0, stdout: 'Here I am\n' });
});
