import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';

const pending = cleanups();

it.each([
  ['throws', () => expect.fail('a failing part')],
  ['rejects', () => Promise.reject(new Error('a failing part'))],
])('stops everything else and saves the sessions when a part %s', async (_how, stop) => {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  const { relay } = target;
  const stopDesktop = vi.spyOn(relay.desktop, 'stop');
  const flush = vi.spyOn(relay.sessions, 'flush');
  vi.spyOn(relay.terminals as { stop(): unknown }, 'stop').mockImplementationOnce(stop);
  await relay.stop();
  expect(stopDesktop).toHaveBeenCalledOnce();
  expect(flush).toHaveBeenCalledOnce();
  expect(target.log.join('\n')).toMatch(/\[ERROR\].*stopping failed: .*a failing part/);
});
