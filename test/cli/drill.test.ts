import { describe, expect, test } from 'vitest';
import { createCommandWork } from '../../cli/drill/commands.ts';
import { createInbox } from '../../cli/drill/inbox.ts';
import { createMessageWork } from '../../cli/drill/messages.ts';
import { createRefreshWork } from '../../cli/drill/refreshes.ts';
import type { Answer, Call, Stage } from '../../cli/drill/stage.ts';
import type { Kind, Work } from '../../cli/drill/tally.ts';
import { run } from '../support/cli.ts';

type Relay = (call: Call) => Answer | null;

/** A stage whose relay is a function. */
function stageOf(relay: Relay, authenticate: Stage['authenticate'] = async () => null) {
  const notes: string[] = [];
  const call = async (request: Call) => relay(request);
  return {
    call,
    asOperator: call,
    authenticate,
    notes,
    note: (text: string) => void notes.push(text),
  } as unknown as Stage;
}

const tallyOf = (work: Work, kind: Kind) => work.tallies().find((tally) => tally.kind === kind);
const ok = (body: Record<string, unknown> = {}): Answer => ({ status: 200, body });

/** Works until the relay was called `calls` times. */
async function during(calls: number, begin: (relay: Relay, signal: AbortSignal) => Promise<void>, relay: Relay) {
  const over = new AbortController();
  let left = calls;
  await begin((call) => {
    if (--left <= 0) over.abort();
    return relay(call);
  }, over.signal);
}

describe('the counts of svc relay drill', () => {
  test('messages: lost when they are acknowledged and never shown, done twice when they are shown twice', async () => {
    const over = new AbortController();
    let isFirst = true;
    const stage = stageOf(({ body }) => {
      const { message_id: id, text } = body as { message_id: string; text: string };
      // The first has no answer at first; the second is lost; the third is shown twice.
      const times = id === 'drill-1' ? 0 : id === 'drill-2' ? 2 : 1;
      if (times > 0) work.arrived(id);
      if (id === 'drill-0' && !isFirst) {
        over.abort();
        return ok();
      }
      for (let time = 0; time < times; time++) work.shown(id, text);
      if (id !== 'drill-0') return ok();
      isFirst = false;
      return null;
    });
    const work = createMessageWork(stage, createInbox(stage), () => undefined);
    await work.run(over.signal);
    const tally = tallyOf(work, 'messages');
    expect(tally).toMatchObject({ repeated: 1, lost: 1, doubled: 1 });
    expect(tally?.sent).toBeGreaterThan(2);
    expect(tally?.acknowledged).toBe(tally?.sent);
    expect(work.isSettled()).toBe(false);
  });

  test('messages: none while they are held back', async () => {
    const over = new AbortController();
    const calls: unknown[] = [];
    const stage = stageOf((call) => {
      calls.push(call.body);
      return ok();
    });
    let asked = 0;
    const isHeld = () => {
      if (++asked === 6) over.abort();
      return true;
    };
    const work = createMessageWork(stage, createInbox(stage), () => undefined, isHeld);
    await work.run(over.signal);
    expect([calls, work.count()]).toEqual([[], 0]);
  });

  test('replies: repeated before their lease is acknowledged, done twice after it', async () => {
    const text = (id: number) => ({ text: `drill reply ${id}`, message_id: `r${id}` });
    const answers = [
      ok({ replies: [text(0), text(1)], lease_id: 'a' }),
      // The acknowledgement is lost three times, so both come again.
      null,
      null,
      null,
      ok({ replies: [text(0), text(1)], lease_id: 'b' }),
      ok({ ok: true, taken: 2 }),
      ok({ replies: [text(1)], lease_id: 'c' }),
      ok({ ok: true, taken: 1 }),
      // One that is there twice, under two ids.
      ok({ replies: [text(2), { ...text(2), message_id: 'r9' }], lease_id: 'd' }),
      ok({ ok: true, taken: 2 }),
    ];
    let work: ReturnType<typeof createMessageWork> | undefined;
    await during(
      answers.length,
      (relay, signal) => {
        const stage = stageOf(relay);
        const inbox = createInbox(stage);
        const made = createMessageWork(stage, inbox, () => ({ reply: (id: string) => `reply-to-${id}` }));
        work = made;
        for (const id of [0, 1, 2, 3]) made.shown(`drill-${id}`, `drill message ${id}`);
        for (const id of [0, 1, 2, 3]) made.acknowledged(`reply-to-drill-${id}`);
        return inbox.read(signal);
      },
      () => answers.shift() ?? null,
    );
    expect(work && tallyOf(work, 'replies')).toEqual({
      kind: 'replies',
      sent: 4,
      acknowledged: 4,
      repeated: 2,
      lost: 1,
      doubled: 2,
    });
  });

  test('commands: lost when they are answered and not carried out', async () => {
    let work: ReturnType<typeof createCommandWork> | undefined;
    await during(
      6,
      (relay, signal) => {
        work = createCommandWork(stageOf(relay), 'token');
        return work.run(signal);
      },
      ({ body }) => {
        const { text } = body as { text: string };
        if (text === 'drill 1') return ok();
        work?.executed(text);
        if (text === 'drill 2') work?.executed(text);
        return text === 'drill 3' ? { status: 502, body: {} } : ok();
      },
    );
    const tally = work && tallyOf(work, 'commands');
    expect(tally).toMatchObject({ lost: 1, doubled: 1 });
    expect(tally?.acknowledged).toBe((tally?.sent ?? 0) - 1);
  });

  test('refreshes: lost when a new token is refused, done twice when an old one is still good', async () => {
    let issued = 0;
    const authenticate = (async () => {
      issued++;
      const payload = { session_token: `t${issued}`, refresh_token: `r${issued}` };
      return { connection: { disconnect: async () => {} }, payload, ended: Promise.resolve() };
    }) as unknown as Stage['authenticate'];
    let work: Work | undefined;
    await during(
      4,
      (relay, signal) => {
        work = createRefreshWork(stageOf(relay, authenticate), { session_token: 't0', refresh_token: 'r0' });
        return work.run(signal);
      },
      // The first new token is refused, and the token before it is good.
      ({ headers }) => ({ status: headers?.authorization === 'Bearer t1' ? 401 : 200, body: {} }),
    );
    expect(work && tallyOf(work, 'refreshes')).toMatchObject({ acknowledged: 2, lost: 1, doubled: 1 });
  });
});

test('svc relay drill: help with examples, and a refused --minutes says what it takes', async () => {
  const help = await run(['relay', 'drill', '--help']);
  expect(help.stdout).toMatch(/--minutes <n>[\s\S]*Examples:\n {2}svc relay drill/);
  for (const minutes of ['0', '-1', '0.01', '1441', 'ten', '1e3']) {
    const { code, stderr } = await run(['relay', 'drill', `--minutes=${minutes}`]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/--minutes: must be a number of minutes from 0\.1 to 1440/);
    expect(stderr).toContain("Run 'svc relay drill --help' for help.");
  }
});
