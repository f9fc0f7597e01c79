import type { Messages } from '../lib/companion/messages.ts';
import type { SettingsStore } from '../lib/companion/safety-settings.ts';
import { describeError } from '../lib/errors.ts';
import type { Clock } from '../lib/kit/clock.ts';
import { parseObject } from '../lib/kit/json.ts';
import type { Asker } from './companion-ask.ts';
import { parseCapabilities } from './companion-grants.ts';
import { obeyReply } from './companion-messages.ts';
import type { Input } from './output.ts';

const MAX_LINE = 64 * 1024;

export interface ScriptParts {
  input: Input;
  asker: Asker;
  settings: SettingsStore;
  messages: Messages;
  clock: Clock;
  notice(text: string): void;
  quit(): void;
}

/**
 * Reads what a script says, one JSON object per line: `{"request_id":"…","allow":true,"dont_ask_again":false}`,
 * `{"master":true}`, `{"grant":"screen_control=30m"}` (replaces all grants; `""` takes them back), `{"messages":true}`,
 * `{"reply":{"text":"…"}}` (with `reply_to` or `chat_id` where it is not the newest message), `{"quit":true}`.
 * The end of the input ends nothing. Returns the end of reading.
 */
export function readScript({ input, asker, settings, messages, clock, notice, quit }: ScriptParts): () => void {
  let rest = '';

  async function obey(text: string): Promise<void> {
    const said = parseObject(text);
    if (!said) return notice('a line on stdin is no JSON object');
    const { request_id: requestId, allow, dont_ask_again: dontAskAgain, master, grant } = said;
    if (typeof allow === 'boolean') {
      const id = typeof requestId === 'string' ? requestId : undefined;
      if (!asker.answer({ allowed: allow, dontAskAgain: dontAskAgain === true }, id)) {
        notice('no such question is open');
      }
    } else if (typeof master === 'boolean') await settings.update({ masterEnabled: master });
    else if (typeof grant === 'string') {
      const capabilities = grant.trim() === '' ? {} : parseCapabilities(grant, clock.now());
      await settings.update({ capabilities });
    } else if (typeof said.messages === 'boolean') await settings.update({ messagesEnabled: said.messages });
    else if (said.reply !== undefined) obeyReply(said.reply, messages);
    else if (said.quit === true) quit();
    else notice('a line on stdin says nothing known: allow, master, grant, messages, reply or quit');
  }

  const onData = (data: Buffer | string) => {
    rest += String(data);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_LINE) rest = '';
    for (const text of lines) {
      if (text.trim() !== '') void obey(text).catch((error) => notice(describeError(error)));
    }
  };
  input.on('data', onData);
  input.resume();
  return () => {
    input.off('data', onData);
    input.pause();
  };
}
