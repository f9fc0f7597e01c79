import { describe, expect, it } from 'vitest';
import {
  interfaceOf,
  localTime,
  providerInstructions,
  systemMessage,
} from '../../../../../lib/voice/agent/text/instructions.ts';
import { TOOL_SURFACE } from '../../../../../lib/voice/agent/text/tools.ts';

const FACTS = {
  provider: 'openai_realtime',
  model: 'gpt-realtime-2.1',
  voice: 'marin',
  profile: 'work',
  chatSessionId: 's1',
  configScope: 'relay',
};
const NOW = Date.UTC(2026, 10, 22, 23, 30, 5);
const TIME = localTime(NOW, 120);

describe('local time (contract 06 §5.4)', () => {
  it.each([
    [0, '2026-11-22', '23:30:05', '+00:00'],
    [120, '2026-11-23', '01:30:05', '+02:00'],
    [-210, '2026-11-22', '20:00:05', '-03:30'],
    [345, '2026-11-23', '05:15:05', '+05:45'],
  ])('%i minutes east of UTC', (offset, date, time, written) => {
    expect(localTime(NOW, offset)).toEqual({ date, time, offset: written });
  });

  it('is that of the relay by default', () => {
    const { date, time, offset } = localTime(NOW);
    expect(new Date(`${date}T${time}${offset}`).getTime()).toBe(NOW);
  });
});

it('the interface says what a session is (contract 06 §5.4)', () => {
  expect(interfaceOf(FACTS, TIME)).toEqual({
    client_surface: 'android_voice_mode',
    engine: 'realtime_agent',
    engine_label: expect.any(String),
    stable_engine: 'svc_voice_output',
    stable_engine_label: expect.any(String),
    provider: 'openai_realtime',
    model: 'gpt-realtime-2.1',
    voice: 'marin',
    profile: 'work',
    chat_session_id: 's1',
    config_scope: 'relay',
    path_summary: expect.stringContaining('openai_realtime'),
    current_date: '2026-11-23',
    current_time: '01:30:05',
    current_timezone: 'UTC+02:00',
    current_datetime: '2026-11-23T01:30:05+02:00',
  });
  expect(interfaceOf({ ...FACTS, profile: null }, TIME)).toMatchObject({ profile: 'default' });
});

describe('system message and instructions (contract 06 §5.4)', () => {
  const options = { facts: FACTS, time: TIME, finalAnswerOnly: false, context: [], profileBlock: '' };

  it.each([
    ['system message', systemMessage(FACTS, TIME)],
    ['instructions', providerInstructions(options)],
  ])('the %s state engine, path, date and time', (_name, text) => {
    for (const fact of ['realtime_agent', 'openai_realtime', 'gpt-realtime-2.1', 'marin', 'work']) {
      expect(text).toContain(fact);
    }
    expect(text).toContain('not the stable svc_voice_output path');
    for (const part of ['2026-11-23', '01:30:05', '+02:00']) expect(text).toContain(part);
  });

  it('the system message asks for concise text that can be spoken', () => {
    expect(systemMessage(FACTS, TIME)).toMatch(/concisely[\s\S]*safe to be spoken/);
  });

  it('the instructions name the functions, and what goes through them', () => {
    const text = providerInstructions(options);
    for (const name of TOOL_SURFACE) expect(text).toContain(name);
    for (const word of ['memory', 'current or external data', 'devices', 'side effects', 'small talk', 'status']) {
      expect(text).toContain(word);
    }
  });

  it('allow one acknowledgement, or none', () => {
    expect(providerInstructions(options)).toContain('one short acknowledgement');
    const silent = providerInstructions({ ...options, finalAnswerOnly: true });
    expect(silent).not.toContain('one short acknowledgement');
    expect(silent).toContain('stay silent until the settled answer');
  });

  it('end with the conversation and the profile, if there are any', () => {
    expect(providerInstructions(options)).not.toMatch(/Conversation before|Profile of/);
    const text = providerInstructions({
      ...options,
      context: [
        { role: 'user', content: 'Hi', source: 'app' },
        { role: 'assistant', content: 'Hello' },
      ],
      profileBlock: 'Persona:\nA butler.',
    });
    expect(text).toContain('oldest message first:\nUser (app): Hi\nAssistant: Hello\n');
    expect(text).toMatch(/Persona:\nA butler\.$/);
  });
});
