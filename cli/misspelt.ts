import { variables } from '../lib/config.ts';
import { closestWord } from '../lib/kit/closest-word.ts';

/** Variables with these prefixes that `variables` does not list, because other parts or programs read them. */
const OTHERS = [
  'SVC_HOME',
  'SVC_WORKSPACE',
  'SVC_PROFILE',
  'SVC_CWD',
  'SVC_PYTHON',
  'SVC_RELAY_HOME',
  'SVC_RELAY_PORT',
  'SVC_API_URL',
  'SVC_WEB_URL',
  'SVC_DASHBOARD_URL',
  'SVC_DASHBOARD_PUBLIC_URL',
  'RELAY_HOSTS',
  'RELAY_PUBLIC_URL',
  'RELAY_UPDATE_FEED_URL',
];

/** A warning for every RELAY_* and SVC_* variable that is unknown and looks like a known one misspelt. */
export function misspeltVariables(env: Record<string, string | undefined>): string[] {
  const known = new Set([...Object.values(variables).map(({ name }) => name), ...OTHERS]);
  return Object.keys(env).flatMap((name) => {
    if (!/^(?:RELAY|SVC)_/.test(name) || env[name] === undefined || known.has(name)) return [];
    const suggestion = closestWord(name, [...known]);
    return suggestion === undefined ? [] : [`${name} is unknown, and ignored: did you mean ${suggestion}?`];
  });
}
