import { isMapping } from '../../kit/yaml.ts';

const HEALTHY = new Set(['ok', 'healthy', 'ready']);
const MOST_COMPONENTS = 100;

export interface Component {
  name: string;
  status: string;
  healthy: boolean;
}

export interface ComponentHealth {
  /** Whether the dashboard reports components at all. */
  supported: boolean;
  overall: 'ok' | 'degraded' | 'unknown';
  components: Component[];
}

/**
 * The `components` of a dashboard's status: a mapping of names, or a list of objects with a `name` or `id`; a state is
 * a text, or the `status`, `state` or `health` of an object (contract 07 §5.2). At most 100.
 */
export function componentHealth(status: unknown): ComponentHealth {
  const given = isMapping(status) ? status.components : undefined;
  if (!isMapping(given) && !Array.isArray(given)) return { supported: false, overall: 'unknown', components: [] };
  const pairs: [name: unknown, value: unknown][] = Array.isArray(given)
    ? given.map((value, index) => [isMapping(value) ? (value.name ?? value.id ?? index) : index, value])
    : Object.entries(given);
  const components = pairs.slice(0, MOST_COMPONENTS).map(([name, value]) => component(String(name), value));
  return { supported: true, overall: components.every(({ healthy }) => healthy) ? 'ok' : 'degraded', components };
}

function component(name: string, value: unknown): Component {
  const state = isMapping(value) ? (value.status ?? value.state ?? value.health) : value;
  const status = typeof state === 'string' && state.trim() !== '' ? state.trim().slice(0, 100) : 'unknown';
  return { name: name.slice(0, 100), status, healthy: HEALTHY.has(status.toLowerCase()) };
}
