import { describe, expect, it } from 'vitest';
import { openPhoneThreads } from '../../../lib/phone/threads.ts';
import { memoryStores, noLog } from '../../support/states.ts';

describe('known chats (contract 04 §5.7)', () => {
  it('are limited to 100, dropping the least recently used first', async () => {
    const threads = await openPhoneThreads({
      store: memoryStores().open('phone-threads'),
      log: noLog,
    });
    const see = (chatId: string) => threads.seen({ chatId, title: null, messageId: null, at: 0 });
    for (let chat = 0; chat < 100; chat++) see(`c${chat}`);
    see('c0');
    see('c100');
    const ids = (await threads.list()).map((thread) => thread.chat_id);
    expect(ids).toHaveLength(100);
    expect(ids).not.toContain('c1');
    expect(ids.slice(-2)).toEqual(['c0', 'c100']);
  });
});
