import { wordsIn } from '../text.ts';
import { consent } from './consent.ts';
import { type Gate, PASS } from './gate.ts';

/** Gate 7: text that names something destructive needs a person's yes (contract 03 §8.3). */
export const destructiveGate: Gate = async (call) => {
  const { route, env } = call;
  const text = (await route.destructiveText?.(call)) ?? '';
  if (text === '' || text === call.allowedText) return PASS;
  const words = wordsIn(text, env.settings.get().destructiveVerbs);
  if (words.length === 0) return PASS;
  const detail = `${route.path.slice(1)}: ${text}`;
  const verdict = await consent(call, { verbs: words, title: `Allow "${words.join(', ')}"?`, detail });
  if (verdict.kind !== 'pass') return verdict;
  // The yes was for this button, not for whatever stands in its place by now.
  if (call.consent === 'confirmed' && (await route.destructiveText?.(call)) !== text) return { kind: 'denied', detail };
  call.allowedText = text;
  return PASS;
};
