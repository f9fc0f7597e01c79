import { readSharedSettings } from '../../lib/companion/link/settings-backup.ts';
import type { Messages } from '../../lib/companion/messages.ts';
import type { SettingsChange, SettingsStore } from '../../lib/companion/safety-settings.ts';
import type { PostedNotification } from '../../lib/companion/triggers.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { asObject, parseObject } from '../../lib/kit/json.ts';
import type { Input } from '../output.ts';
import { createChunkReader } from '../stdin.ts';
import { parseCapabilities } from './grants.ts';
import type { Questions } from './questions.ts';

const MAX_LINE = 64 * 1024;
const INSTRUCTIONS = 'allow, master, grant, messages, settings, notification, reply, upload and quit';

export interface ScriptDeps {
  input: Input;
  questions: Questions;
  settings: SettingsStore;
  messages: Messages;
  clock: Clock;
  /** Lets the phone show a notification. */
  post(notification: PostedNotification): void;
  /** Uploads a file of this machine, and reports the outcome. */
  upload(path: string): Promise<void>;
  notice(text: string): void;
  quit(): void;
}

/**
 * Reads the instructions of a script, one JSON object per line:
 * `{"request_id":"…","allow":true,"dont_ask_again":false}` answers a question, `{"master":true}` and
 * `{"messages":true}` set the toggles, `{"grant":"screen_control=30m"}` replaces all grants (`""` revokes them),
 * `{"settings":{"blocklist":[]}}` sets what a backup may hold, by the same keys, at once, `{"notification":{…}}` lets the
 * phone show a notification, `{"reply":{"text":"…"}}` replies to the newest message, or to `reply_to` or `chat_id`, where
 * `answer_index` in place of the text chooses one of its answers, `{"upload":"/path"}` gives the relay a file, and
 * `{"quit":true}` ends.
 * The end of the input ends nothing. Returns a function that stops reading.
 */
export function readScript({
  input,
  questions,
  settings,
  messages,
  clock,
  post,
  upload,
  notice,
  quit,
}: ScriptDeps): () => void {
  const textOf = createChunkReader();
  let rest = '';

  async function execute(text: string): Promise<void> {
    const instruction = parseObject(text);
    if (!instruction) return notice('a line on stdin is not a JSON object');
    const { request_id: requestId, allow, dont_ask_again: dontAskAgain, master, grant } = instruction;
    if (typeof allow === 'boolean') {
      const id = typeof requestId === 'string' ? requestId : undefined;
      if (!questions.answer({ allowed: allow, dontAskAgain: dontAskAgain === true }, id)) {
        notice('no such question is open');
      }
    } else if (typeof master === 'boolean') await settings.update({ masterEnabled: master });
    else if (typeof grant === 'string') {
      const capabilities = grant.trim() === '' ? {} : parseCapabilities(grant, clock.now());
      await settings.update({ capabilities });
    } else if (typeof instruction.messages === 'boolean') {
      await settings.update({ messagesEnabled: instruction.messages });
    } else if (instruction.settings !== undefined) {
      await settings.update(readSettings(instruction.settings));
    } else if (instruction.notification !== undefined) post(readNotification(instruction.notification));
    else if (instruction.reply !== undefined) reply(instruction.reply, messages);
    else if (typeof instruction.upload === 'string') await upload(instruction.upload);
    else if (instruction.quit === true) quit();
    else notice(`a line on stdin has none of ${INSTRUCTIONS}`);
  }

  const onData = (data: Buffer | string) => {
    rest += textOf(data);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > MAX_LINE) rest = '';
    for (const text of lines) {
      if (text.trim() !== '') void execute(text).catch((error) => notice(describeError(error)));
    }
  };
  input.on('data', onData);
  input.resume();
  return () => {
    input.off('data', onData);
    input.pause();
  };
}

/** Settings by the keys of a backup. @throws RelayError `invalid`, naming the one that is unknown or unusable. */
function readSettings(value: unknown): SettingsChange {
  const given = asObject(value);
  if (!given) throw new RelayError('invalid', 'settings must be a JSON object');
  const { change, ignored } = readSharedSettings(given);
  if (ignored.length > 0) throw new RelayError('invalid', `there is no setting ${ignored.join(', ')}`);
  return change;
}

/** A notification with the members of `notification.posted` (contract 02 §6). @throws RelayError `invalid`. */
function readNotification(value: unknown): PostedNotification {
  const { package_name: packageName, title = null, text = null } = asObject(value) ?? {};
  const isText = (member: unknown): member is string | null => member === null || typeof member === 'string';
  if (typeof packageName === 'string' && isText(title) && isText(text)) return { packageName, title, text };
  throw new RelayError('invalid', 'a notification needs a package_name; title and text must be strings');
}

/** @throws RelayError `invalid` for a malformed reply, and as `Messages.reply`. */
function reply(value: unknown, messages: Messages): void {
  const { text, answer_index: answerIndex, chat_id: chatId, reply_to: replyTo } = asObject(value) ?? {};
  const isOptionalText = (member: unknown): member is string | undefined =>
    member === undefined || typeof member === 'string';
  if (!isOptionalText(text) || !isOptionalText(chatId) || !isOptionalText(replyTo)) {
    throw new RelayError('invalid', 'text, chat_id and reply_to of a reply must be strings');
  }
  if (answerIndex !== undefined && typeof answerIndex !== 'number') {
    throw new RelayError('invalid', 'answer_index of a reply must be a number');
  }
  if (text === undefined && answerIndex === undefined) {
    throw new RelayError('invalid', 'a reply needs a text or an answer_index');
  }
  messages.reply({ text, answerIndex, chatId, replyTo });
}
