import { useT } from '../../shared/i18n.ts';

/** Settings of the phone's app that a page does not need, by their keys (specification 2.1 and 8). */
const UNSUPPORTED: readonly (readonly [keys: readonly string[], reason: string])[] = [
  [['tofu_pins'], 'The browser verifies certificates itself, and exposes no key that a page could pin.'],
  [
    ['API Server URL', 'API Key'],
    'Direct API is not used: this page talks only to its relay, which keeps the key of the API server.',
  ],
  [['Dashboard URL'], 'The dashboard is a page of its own: open it at its own address.'],
  [
    ['Dashboard session cookies'],
    'The browser keeps the cookies of a dashboard itself and shows them to no other page.',
  ],
  [
    ['bridge_trusted_destructive_verbs'],
    'A browser carries out no calls to a phone. Set it on the phone, or with svc companion.',
  ],
  [
    [
      'notification_triggers',
      'notification_triggers_enabled',
      'notification_triggers_kill_switch',
      'notification_trigger_rules_json',
      'notification_trigger_activity_log_json',
    ],
    'A browser does not see the notifications of other apps. Set them on the phone, or with svc companion.',
  ],
  [
    ['Share phone status'],
    'A browser knows little about its phone, and only API-only chats would send it: this page has none.',
  ],
  [
    ['Personality'],
    'The list is in the API server (GET /api/config), which the relay does not pass on, so the default of the server applies.',
  ],
  [['Cached media cap'], 'This page caches no media, so there is nothing to evict: a file is gone when you close it.'],
];

export function Unsupported() {
  const t = useT();
  return (
    <details class="card">
      <summary>{t('What only the app of a phone can set')}</summary>
      <dl class="reasons">
        {UNSUPPORTED.map(([keys, reason]) => [
          <dt key={keys[0]}>
            {keys.map((key) => (
              <div key={key}>
                <code>{key}</code>
              </div>
            ))}
          </dt>,
          <dd key={`${keys[0]} reason`} class="small soft">
            {t(reason)}
          </dd>,
        ])}
      </dl>
    </details>
  );
}
