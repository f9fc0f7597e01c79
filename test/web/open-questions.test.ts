import { expect, it } from 'vitest';
import { answeredBy } from '../../handlers/web/app/inbox/open-questions.ts';

it('contract 12 §3: a question is answered by a reply that waits, and by one that the relay has', () => {
  const items = [
    { kind: 'message', replyTo: 'm0' },
    { kind: 'reply', replyTo: 'm1' },
    { kind: 'reply', replyTo: null },
  ] as const;
  const answered = answeredBy(items, [{ reply_to: 'm2' }]);
  expect(['m0', 'm1', 'm2', 'm3'].filter((id) => answered.has(id))).toEqual(['m1', 'm2']);
});
