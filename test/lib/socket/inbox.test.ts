import { expect, it, vi } from 'vitest';
import { Inbox } from '../../../lib/socket/inbox.ts';
import type { Transport } from '../../../lib/socket/transport.ts';

function setup({ canPause = true } = {}) {
  const calls: string[] = [];
  const transport = {
    pause() {
      calls.push('pause');
      return canPause;
    },
    resume: () => void calls.push('resume'),
  } as Transport;
  const handled: string[] = [];
  const inbox = new Inbox(transport, (frame) => void handled.push(String(frame)));
  return { calls, handled, inbox };
}

it('contract 02 §1.6: reading pauses with the first reason and resumes with the end of the last', () => {
  const { calls, handled, inbox } = setup();
  expect([inbox.pause(), inbox.pause()]).toEqual([true, true]);
  inbox.receive('already read');
  inbox.resume();
  expect([calls, handled, inbox.isPaused]).toEqual([['pause'], ['already read'], true]);
  inbox.resume();
  expect([calls, inbox.isPaused]).toEqual([['pause', 'resume'], false]);
});

it('contract 02 §1.1: what was read before a hold is handled after it, in order', () => {
  const { calls, handled, inbox } = setup();
  inbox.hold();
  inbox.hold();
  for (const frame of ['a', 'b']) inbox.receive(frame);
  inbox.release();
  expect([calls, handled]).toEqual([['pause'], []]);
  inbox.release();
  expect([calls, handled]).toEqual([
    ['pause', 'resume'],
    ['a', 'b'],
  ]);
});

it('contract 02 §1.1: a held message that leads to another hold leaves the rest for later', () => {
  const { calls, handled, inbox } = setup();
  inbox.hold();
  for (const frame of ['a', 'b', 'c']) inbox.receive(frame);
  vi.spyOn(handled, 'push').mockImplementationOnce((frame) => {
    inbox.hold();
    return Array.prototype.push.call(handled, frame);
  });
  inbox.release();
  inbox.receive('d');
  expect([calls, handled]).toEqual([['pause'], ['a']]);
  inbox.release();
  expect([calls, handled]).toEqual([
    ['pause', 'resume'],
    ['a', 'b', 'c', 'd'],
  ]);
});

it('contract 02 §1.6: after 1,024 messages, the others have their turn', async () => {
  const { handled, inbox } = setup();
  const frames = Array.from({ length: 4000 }, (_, index) => String(index));
  for (const frame of frames) inbox.receive(frame);
  expect(handled).toHaveLength(1024);
  const seen: number[] = [];
  while (handled.length < frames.length) {
    await new Promise((resolve) => setImmediate(resolve));
    seen.push(handled.length);
  }
  expect(seen).toEqual([2048, 3072, 4000]);
  expect(handled).toEqual(frames);
});

it('handles what is held without the help of a runtime that cannot pause', async () => {
  const { handled, inbox } = setup({ canPause: false });
  for (let index = 0; index < 300; index++) inbox.receive('x');
  expect(inbox.pause()).toBe(false);
  await vi.waitFor(() => expect(handled).toHaveLength(300));
});

it('contract 02 §1.8: at its end the socket is read again, and what was held is dropped', () => {
  const { calls, handled, inbox } = setup();
  inbox.hold();
  inbox.receive('a');
  inbox.end();
  inbox.release();
  expect([calls, handled]).toEqual([['pause', 'resume'], []]);
});
