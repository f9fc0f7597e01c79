import { Icon } from '../../shared/icons.tsx';

/** The title of a place below the list, with the way back. */
export const BackLink = ({ href, label, title }: { href: string; label: string; title: string }) => (
  <div class="row line">
    <a class="button plain icon-only" href={href} aria-label={label} title={label}>
      <Icon name="back" />
    </a>
    <h2 class="grow">{title}</h2>
  </div>
);
