import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Skill } from '../../../../lib/profiles/skills.ts';
import { sizeText } from '../../shared/ages.ts';
import { Button, Chip, Dialog, Empty, TextField } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { hrefOf, useRouter } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { BackLink } from '../profiles/back-link.tsx';
import { createDocuments, isMemoryName } from '../profiles/documents.ts';
import { Editor } from '../profiles/editor.tsx';
import type { ProfileRow } from '../profiles/rows.ts';

/** The agent's profiles: `#/profiles`, `#/profiles/<name>`, `#/profiles/<name>/soul`, `…/memory/<file>`. */
export default function Profiles() {
  const { argument } = useRouter().place.value;
  const [profile = '', kind, filename] = argument.split('/');
  if (profile === '') return <ProfileList />;
  if (kind === 'soul') return <Editor key={argument} name={{ profile, memory: null }} />;
  if (kind === 'memory' && filename) return <Editor key={argument} name={{ profile, memory: filename }} />;
  return <ProfilePage key={profile} name={profile} />;
}

const linkTo = (...parts: string[]): string => hrefOf('profiles', parts.join('/'));

function ProfileList() {
  const t = useT();
  const rows = useApp().session.profiles.value;
  if (rows.length === 0) {
    return (
      <div class="screen">
        <Empty icon="profile">
          {t('The relay knows no profile of the agent. It looks for config.yaml in its home.')}
        </Empty>
      </div>
    );
  }
  return (
    <div class="screen">
      <ul class="list">
        {rows.map((row) => (
          <li key={row.name}>
            <a class="item" href={linkTo(row.name)}>
              <Avatar name={row.name} />
              <span class="text">
                <strong>{row.name}</strong>
                <span class="small soft">{row.description || modelOf(row)}</span>
              </span>
              {row.isRunning && <Chip>{t('Runs')}</Chip>}
              <Icon name="next" />
            </a>
          </li>
        ))}
      </ul>
    </div>
  );
}

const modelOf = ({ model, provider }: ProfileRow): string => [model, provider].filter(Boolean).join(', ');

/** The picture of a profile, or its first letter. */
function Avatar({ name }: { name: string }) {
  const { retained } = useApp();
  const picture = useSignal('');
  useEffect(() => {
    const attempt = new AbortController();
    let url = '';
    retained(createDocuments)
      .avatar(name, attempt.signal)
      .then((blob) => {
        if (!blob || attempt.signal.aborted) return;
        url = URL.createObjectURL(blob);
        picture.value = url;
      })
      .catch(() => {
        // The letter stays.
      });
    return () => {
      attempt.abort();
      URL.revokeObjectURL(url);
    };
  }, [name]);
  if (picture.value !== '') {
    return (
      <img
        class="avatar"
        src={picture.value}
        alt=""
        onError={() => {
          picture.value = '';
        }}
      />
    );
  }
  return (
    <span class="avatar" aria-hidden="true">
      {name.charAt(0).toUpperCase()}
    </span>
  );
}

function ProfilePage({ name }: { name: string }) {
  const t = useT();
  const { session } = useApp();
  const row = session.profiles.value.find((one) => one.name === name);
  return (
    <div class="screen">
      <BackLink href={hrefOf('profiles')} label={t('All profiles')} title={name} />
      {row && (
        <section class="card" aria-label={name}>
          <div class="row line">
            <Avatar name={name} />
            <div class="grow">
              <p>{row.description || t('It has no description.')}</p>
              <p class="soft small">{modelOf(row)}</p>
            </div>
            {row.isRunning && <Chip>{t('Runs')}</Chip>}
          </div>
        </section>
      )}
      <Documents profile={name} />
      <Skills profile={name} />
    </div>
  );
}

function Documents({ profile }: { profile: string }) {
  const t = useT();
  const { retained, session } = useApp();
  const naming = useFlag();
  const { state, reload } = useLoad(
    (signal) => retained(createDocuments).memory(profile, signal),
    [profile, session.isOnline.value],
  );
  return (
    <section class="block" aria-labelledby="documents">
      <div class="row apart">
        <h2 id="documents">{t('Documents')}</h2>
        <Button icon="plus" onClick={naming.on}>
          {t('New memory')}
        </Button>
      </div>
      <ul class="list">
        <li>
          <DocumentLink
            href={linkTo(profile, 'soul')}
            title="SOUL.md"
            detail={t('Who the agent is, and how it speaks')}
          />
        </li>
        <LoadedView state={state} reload={reload}>
          {(entries) =>
            entries.map(({ filename, size_bytes }) => (
              <li key={filename}>
                <DocumentLink
                  href={linkTo(profile, 'memory', filename)}
                  title={filename}
                  detail={`${t('Memory')}, ${sizeText(size_bytes)}`}
                />
              </li>
            ))
          }
        </LoadedView>
      </ul>
      {naming.isOn && <NewMemory profile={profile} onClose={naming.off} />}
    </section>
  );
}

const DocumentLink = ({ href, title, detail }: { href: string; title: string; detail: string }) => (
  <a class="item" href={href}>
    <Icon name="files" />
    <span class="text">
      {title}
      <span class="small soft">{detail}</span>
    </span>
    <Icon name="next" />
  </a>
);

function NewMemory({ profile, onClose }: { profile: string; onClose(): void }) {
  const t = useT();
  const router = useRouter();
  const typed = useSignal('');
  const name = /\.md$/.test(typed.value.trim()) ? typed.value.trim() : `${typed.value.trim()}.md`;
  const isBad = typed.value.trim() !== '' && !isMemoryName(name);
  return (
    <Dialog
      title={t('New memory')}
      onClose={onClose}
      onSubmit={() => {
        if (isMemoryName(name)) router.go('profiles', `${profile}/memory/${name}`);
      }}
      submit={t('Write')}
      isBlocked={!isMemoryName(name)}
    >
      <TextField
        label={t('Name')}
        hint={t('A file in memories, such as people.md')}
        error={isBad ? t('Use letters, digits, dots, dashes and underscores.') : undefined}
        of={typed}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
      />
    </Dialog>
  );
}

function Skills({ profile }: { profile: string }) {
  const t = useT();
  const { retained, session } = useApp();
  const { state, reload } = useLoad(
    (signal) => retained(createDocuments).skills(profile, signal),
    [profile, session.isOnline.value],
  );
  return (
    <section class="block" aria-labelledby="skills">
      <h2 id="skills">{t('Skills')}</h2>
      <LoadedView state={state} reload={reload}>
        {(skills) =>
          skills.length === 0 ? (
            <p class="soft">{t('This profile has no skills.')}</p>
          ) : (
            <>
              <p class="soft small">
                {t('Each of them is on. They are switched in the configuration of the agent, not from here.')}
              </p>
              {byCategory(skills).map(([category, members]) => (
                <details key={category} class="card">
                  <summary>
                    <Icon name="next" />
                    {category} <span class="soft">{members.length}</span>
                  </summary>
                  <dl class="skills">
                    {members.map(({ path, name, description }) => [
                      <dt key={`${path} name`}>{name}</dt>,
                      <dd key={path} class="small soft">
                        {description}
                      </dd>,
                    ])}
                  </dl>
                </details>
              ))}
            </>
          )
        }
      </LoadedView>
    </section>
  );
}

function byCategory(skills: readonly Skill[]): [category: string, members: Skill[]][] {
  const groups = new Map<string, Skill[]>();
  for (const skill of skills) groups.set(skill.category, [...(groups.get(skill.category) ?? []), skill]);
  return [...groups];
}
